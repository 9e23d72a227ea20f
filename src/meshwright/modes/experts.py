"""Expert parallelism (GShard, arXiv:2006.16668): whole experts on different ranks, tokens travel to them and back.

Split: the stacked experts' first dimension over `expert` ranks, which are taken from the tensor, context and data ranks
of a stage. Sent a mixture layer and micro-batch of n tokens a rank, k experts each: one all-to-all of n·k·H forward and
one back, the same backward, and once the counts (E numbers). Where experts are not spread but tensor ranks exist, they
are split by features like any product, with a gather and a reduce-scatter of tokens and routing weights.
Keeps: 1/e of the experts' parameters, gradients and optimizer states. Use it as soon as there are experts to spread:
each rank then multiplies few experts by many tokens. Not without room on fast links: all-to-alls are exposed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from meshwright.modes import comm, routing
from meshwright.modes.cuts import Cuts, cut_parameter, matching
from meshwright.modes.mesh import Mesh
from meshwright.modes.recipe import Recipe
from meshwright.modes.rows import inverse, spread_rows
from meshwright.spec.errors import LayoutError


def apply_experts(model: nn.Module, mesh: Mesh, recipe: Recipe, cuts: Cuts) -> None:
    """Spread the experts of every mixture over the expert ranks, or split them over the tensor ranks.

    Raises LayoutError where their number or width does not divide.
    """
    if recipe.experts is None:
        return
    for name, moe in matching(model, recipe.experts):
        if mesh.layout.expert > 1:
            _spread(moe, name, mesh, cuts)
        elif mesh.size("tensor") > 1:
            _split(moe, name, mesh, cuts)
        _share_counts(moe, mesh)


def _spread(moe: nn.Module, name: str, mesh: Mesh, cuts: Cuts) -> None:
    ranks, rank = mesh.size("expert"), mesh.index("expert")
    stacked = moe.get_submodule("experts")
    for key, parameter in list(stacked.named_parameters(recurse=False)):
        full = f"{name}.experts.{key}"
        count = parameter.size(0)
        if count % ranks:
            raise LayoutError(f"{name}: {count} experts do not divide over {ranks} expert ranks.")
        cut_parameter(stacked, key, full, cuts, 0, rank * (count // ranks), count // ranks, ways=ranks)
        cuts[full] = replace(cuts[full], expert=True)
    layout = mesh.layout
    if layout.tensor > 1 and not layout.sequence_parallel:
        raise LayoutError(
            "Expert parallelism beside tensor ranks needs sequence parallelism.", legal=[f"tp{layout.tensor}"]
        )
    moe.exchange = _AllToAll(mesh.group("expert"))  # type: ignore[assignment]


def _split(moe: nn.Module, name: str, mesh: Mesh, cuts: Cuts) -> None:
    """Experts cut by features: gate and up by rows, down by columns, of every expert."""
    ranks, rank = mesh.size("tensor"), mesh.index("tensor")
    stacked = moe.get_submodule("experts")
    for key, parameter in list(stacked.named_parameters(recurse=False)):
        dim = 2 if key == "down" else 1
        width = parameter.size(dim)
        if width % ranks:
            raise LayoutError(f"{name}: experts of width {width} do not split over {ranks} tensor ranks.")
        cut_parameter(
            stacked, key, f"{name}.experts.{key}", cuts, dim, rank * (width // ranks), width // ranks, ways=ranks
        )
    moe.exchange = _Features(moe.exchange, mesh.group("tensor"), mesh.layout.sequence_parallel)  # type: ignore


def _share_counts(moe: nn.Module, mesh: Mesh) -> None:
    """The load-balancing loss counts whole sequences, of which a rank may hold a piece."""
    group = mesh.group("sequence" if mesh.layout.sequence_parallel else "context")
    if group.size() > 1:
        moe.count_reduce = lambda counts: comm.all_reduce(counts, group)  # type: ignore[assignment]
    layout = mesh.layout
    if layout.tensor > 1 and layout.sequence_parallel:
        tensor = mesh.group("tensor")
        moe.local_rows = lambda rows: comm.split(rows, tensor)  # type: ignore[assignment]


class _Features:
    """Tokens gathered over the tensor ranks; each computes a share of every expert's features; sums are scattered."""

    def __init__(self, local: Any, group: dist.ProcessGroup, sequence: bool) -> None:
        self.local, self.group, self.sequence = local, group, sequence

    def __call__(
        self, x: torch.Tensor, expert_of: torch.Tensor, weights: torch.Tensor, experts: nn.Module
    ) -> torch.Tensor:
        if not self.sequence:
            x, weights = comm.copy(x, self.group), comm.copy(weights, self.group)
            return comm.all_sum(self.local(x, expert_of, weights, experts), self.group)
        x, weights = comm.gather(x, self.group), comm.gather(weights, self.group)
        expert_of = comm.all_gather(expert_of, self.group)
        return comm.scatter_sum(self.local(x, expert_of, weights, experts), self.group)


class _AllToAll:
    """Each token to the ranks of its experts and back, in the order of the experts."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def __call__(
        self, x: torch.Tensor, expert_of: torch.Tensor, weights: torch.Tensor, experts: nn.Module
    ) -> torch.Tensor:
        """`x` [n, H], `expert_of` and `weights` [n, k] → [n, H]."""
        ranks, k = self.group.size(), expert_of.size(1)
        local = next(experts.parameters()).size(0)
        order = expert_of.flatten().argsort(stable=True)
        counts = torch.bincount(expert_of.flatten(), minlength=ranks * local)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)  # [from rank, my expert]
        both = torch.stack((counts.view(ranks, local).sum(1), arriving.view(ranks, local).sum(1)))
        sent, got = routing.traded(both, expert_of.numel())
        here = _Exchange.apply(spread_rows(x, order, k), sent, got, self.group)  # type: ignore[no-untyped-call]
        by_expert = _grouping(arriving.view(ranks, local), len(here))
        done = experts(spread_rows(here, by_expert, 1), arriving.view(ranks, local).sum(0))
        back = spread_rows(done, inverse(by_expert), 1)
        returned = _Exchange.apply(back, got, sent, self.group)  # type: ignore[no-untyped-call]
        visits = spread_rows(returned, inverse(order), 1).view(*expert_of.shape, x.size(1))
        return torch.einsum("nk,nkh->nh", weights.to(visits.dtype), visits).to(x.dtype)


def _grouping(arriving: torch.Tensor, rows: int) -> torch.Tensor:
    """Order that turns `rows` rows sorted by (from rank, expert) into rows sorted by (expert, from rank)."""
    ranks, local = arriving.shape
    expert = torch.arange(local, device=arriving.device).repeat(ranks)
    expert = expert.repeat_interleave(arriving.flatten(), output_size=rows)
    return expert.argsort(stable=True)


class _Exchange(torch.autograd.Function):
    """Rows to the ranks that want them: `sent` rows to each, `got` from each; backward the other way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sent: list[int], got: list[int], group: dist.ProcessGroup) -> torch.Tensor:
        ctx.sent, ctx.got, ctx.group = sent, got, group
        return _traded(x, sent, got, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _traded(gradient, ctx.got, ctx.sent, ctx.group), None, None, None


def _traded(x: torch.Tensor, sent: list[int], got: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    out = x.new_empty((sum(got), *x.shape[1:]))
    dist.all_to_all_single(out, x.contiguous(), got, sent, group=group)
    return out
