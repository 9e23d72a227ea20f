"""Tensor parallelism with sequence parallelism (Megatron-LM, arXiv:1909.08053; Korthikanti et al., arXiv:2205.05198).

Split: weight matrices over `tensor` ranks, by columns where heads or features begin (q, k, v, gate, up) and by rows
where they are summed (o, down); the embedding table and the head by rows of the vocabulary. With sequence parallelism
also the tokens of everything between two such regions (norms, residuals).

Sent a layer and micro-batch, T tokens of H numbers: with sequence parallelism 2 all-gathers and 2 reduce-scatters
forward, the same backward, each (t-1)/t · T·H; without, 2 all-reduces forward and 2 backward of twice that: the same
bytes. Once a step: the gradients of norms and other whole parameters, each rank's being that of its own tokens.
Keeps: 1/t of the parameters, gradients and optimizer states; with sequence parallelism 1/t of every activation.
Use it inside a node, when a layer's weights or activations are too big; not across nodes: its traffic is exposed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from meshwright.modes import comm
from meshwright.modes.cuts import Cuts, cut_parameter, matching, note_partial, whole_cut
from meshwright.modes.mesh import Mesh, add_axis
from meshwright.modes.recipe import Recipe
from meshwright.spec.errors import LayoutError

KV_COPIES = "kv_copies"
"""The axis of tensor ranks that hold the same key and value head."""


class Region:
    """How hidden states enter and leave the split regions: the two sides of sequence parallelism."""

    def __init__(self, mesh: Mesh, sequence_dim: int) -> None:
        self.group = mesh.group("tensor")
        self.sequence = mesh.layout.sequence_parallel
        self.dim = sequence_dim

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """Hidden states as a column-split product needs them: all tokens on every rank."""
        if not self.sequence:
            return comm.copy(x, self.group)
        return self._along(comm.gather, x)

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of what the ranks computed: each rank's own tokens, or all of them without sequence parallelism."""
        if not self.sequence:
            return comm.all_sum(x, self.group)
        return self._along(comm.scatter_sum, x)

    def own(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's tokens of what all ranks computed alike."""
        return self._along(comm.split, x) if self.sequence else x

    def _along(self, collective: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        if self.dim == 0:
            return collective(x, self.group)
        return collective(x.movedim(self.dim, 0), self.group).movedim(0, self.dim)


def apply_tensor(model: nn.Module, mesh: Mesh, recipe: Recipe, cuts: Cuts) -> None:
    """Cut `model`'s parameters over the tensor ranks by the recipe's table; put the collectives where regions begin.

    Raises LayoutError for a width that the tensor degree does not divide.
    """
    if mesh.size("tensor") == 1:
        return
    region = Region(mesh, recipe.sequence_dim)
    for pattern, style in recipe.tensor.items():
        for name, module in matching(model, pattern):
            _STYLES[style](module, name, model, mesh, region, cuts)


def _enter(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    def gather_first(
        _: nn.Module, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            return (region.enter(args[0]), *args[1:]), named
        first = next(iter(named))
        return args, named | {first: region.enter(named[first])}

    module.register_forward_pre_hook(gather_first, with_kwargs=True)


def _column(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    ranks, rank = mesh.size("tensor"), mesh.index("tensor")
    for key, parameter in list(module.named_parameters(recurse=False)):
        # Of queries no rank takes half a head.
        unit = getattr(module, "head_rows", None) or _head_dim(model, name) or 1
        rows = _share(parameter.size(0) // unit, ranks, f"{name}.{key}") * unit
        cut_parameter(module, key, f"{name}.{key}", cuts, 0, rank * rows, rows, ways=ranks)


def _head_dim(model: nn.Module, name: str) -> int | None:
    """Of the attention that the module is a part of; None: it is a part of no attention."""
    return getattr(model.get_submodule(name.rpartition(".")[0]), "head_dim", None)


def _columns_kv(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    """Key or value heads: where there are fewer than ranks, neighbours hold the same one and sum its gradients."""
    ranks, rank = mesh.size("tensor"), mesh.index("tensor")
    head_dim = _head_dim(model, name)
    assert head_dim is not None, f"the parent of {name} has no head_dim"
    for key, parameter in list(module.named_parameters(recurse=False)):
        full = f"{name}.{key}"
        heads = parameter.size(0) // head_dim
        if heads >= ranks:
            rows = _share(heads, ranks, full) * head_dim
            cut_parameter(module, key, full, cuts, 0, rank * rows, rows, ways=ranks)
            continue
        copies = _share(ranks, heads, full)
        cut_parameter(module, key, full, cuts, 0, rank // copies * head_dim, head_dim, ways=heads)
        cuts[full] = replace(cuts[full], sum_over=(*cuts[full].sum_over, _kv_axis(mesh, copies)))


def _kv_axis(mesh: Mesh, copies: int) -> str:
    """The axis of `copies` neighbouring tensor ranks; a mesh may serve models with other numbers of heads."""
    name = KV_COPIES if KV_COPIES not in mesh.axes or mesh.size(KV_COPIES) == copies else f"{KV_COPIES}{copies}"
    if name not in mesh.axes:
        add_axis(mesh, name, torch.arange(mesh.layout.devices).view(-1, copies))
    return name


def _row(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    ranks, rank = mesh.size("tensor"), mesh.index("tensor")
    weight = module.get_parameter("weight")
    columns = _share(weight.size(1), ranks, f"{name}.weight")
    cut_parameter(module, "weight", f"{name}.weight", cuts, 1, rank * columns, columns, ways=ranks)
    if getattr(module, "bias", None) is not None and region.sequence:
        full = f"{name}.bias"
        cut = cuts.get(full) or whole_cut(module.get_parameter("bias"))
        cuts[full] = replace(cut, sum_over=(*cut.sum_over, "tensor"))

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = region.leave(F.linear(x, module.weight))  # type: ignore[arg-type]
        # Added once, after the sum over ranks.
        return out if module.bias is None else out + module.bias.to(out.dtype)  # type: ignore[operator]

    module.forward = forward


def _vocabulary_rows(module: nn.Module, name: str, mesh: Mesh, cuts: Cuts) -> tuple[int, int]:
    """Cut a table by rows of the vocabulary, the last ranks padded with zeros; gives this rank's first row and rows."""
    ranks, rank = mesh.size("tensor"), mesh.index("tensor")
    full = f"{name}.weight"
    vocabulary = module.get_parameter("weight").size(0) if full not in cuts else cuts[full].shape[0]
    padded = -(-vocabulary // ranks)
    start = min(rank * padded, vocabulary)
    rows = min(padded, vocabulary - start)
    for key in ("weight", "bias"):
        if f"{name}.{key}" not in cuts and module._parameters.get(key) is not None:
            cut_parameter(module, key, f"{name}.{key}", cuts, 0, start, rows, padded=padded, ways=ranks)
    return start, rows


def _embedding(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    start, rows = _vocabulary_rows(module, name, mesh, cuts)

    def forward(ids: torch.Tensor) -> torch.Tensor:
        if region.dim == 0:
            ids = ids.flatten()
        elsewhere = (ids < start) | (ids >= start + rows)
        found = F.embedding((ids - start).masked_fill(elsewhere, 0), module.weight)  # type: ignore[arg-type]
        return region.leave(found.masked_fill(elsewhere.unsqueeze(-1), 0))

    module.forward = forward


def _head(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    _vocabulary_rows(module, name, mesh, cuts)
    _enter(module, name, model, mesh, region, cuts)


def _sequence(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    if region.sequence:
        note_partial(module, name, cuts, "tensor")


def _partial(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    note_partial(module, name, cuts, "tensor")


def _positions(module: nn.Module, name: str, model: nn.Module, mesh: Mesh, region: Region, cuts: Cuts) -> None:
    if not region.sequence:
        return
    note_partial(module, name, cuts, "tensor")

    def keep_own(_: nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        return region.own(out.flatten(0, -2) if region.dim == 0 else out)

    module.register_forward_hook(keep_own)


def _share(length: int, ranks: int, what: str) -> int:
    if length % ranks:
        raise LayoutError(
            f"{what} has {length} rows, columns or heads to split, which {ranks} tensor ranks do not divide.",
            legal=[f"tp{d}" for d in range(1, ranks + 1) if length % d == 0],
        )
    return length // ranks


_STYLES: dict[str, Callable[[nn.Module, str, nn.Module, Mesh, Region, Cuts], None]] = {
    "enter": _enter,
    "column": _column,
    "columns_kv": _columns_kv,
    "row": _row,
    "embedding": _embedding,
    "head": _head,
    "sequence": _sequence,
    "partial": _partial,
    "positions": _positions,
}
