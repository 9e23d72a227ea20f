"""Context parallelism: the tokens of a sequence over ranks. Everything but attention works token by token.

`split.py` says which tokens a rank holds; `ring.py`, `allgather.py` and `ulysses.py` are the three ways in which
attention looks beyond them, each with its formulas, which `cost.wire.context` has as functions. All run on CPU (gloo)
and GPU (nccl), causal or not, with grouped heads, documents that do not see each other, and sliding windows. Causality
and windows go by the place in the sequence, so documents are runs of consecutive tokens.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from meshwright.modes.context.allgather import allgather_attention
from meshwright.modes.context.kernel import Kernel
from meshwright.modes.context.ring import ring_attention
from meshwright.modes.context.seats import gather_documents, take_seats
from meshwright.modes.context.split import indices, split_batch, take
from meshwright.modes.context.ulysses import gather_sequence, ulysses_attention
from meshwright.modes.context.whole import whole_attention
from meshwright.modes.cuts import matching
from meshwright.modes.mesh import Mesh
from meshwright.modes.recipe import Recipe
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import CONTEXT_KINDS, Layout

__all__ = ["Kernel", "apply_context", "context_kernel", "indices", "split_batch", "take", "whole_attention"]


def apply_context(model: nn.Module, mesh: Mesh, layout: Layout, recipe: Recipe) -> None:
    """Puts the layout's kernel on every module that `recipe.attention` matches; without context ranks, nothing.

    Raises LayoutError when the recipe names no attention, or the names match no module that has a kernel.
    """
    if layout.context == 1:
        return
    if recipe.attention is None:
        raise LayoutError("The model's recipe names no attention, which context parallelism has to replace.", ["cp1"])
    found = [module for _, module in matching(model, recipe.attention) if hasattr(module, "kernel")]
    if not found:
        raise LayoutError(f"No module {recipe.attention!r} of the model has a kernel to replace.", ["cp1"])
    kernel = context_kernel(layout.context_kind, mesh.group("context"))
    for module in found:
        module.kernel = kernel  # type: ignore[assignment]


def context_kernel(kind: str, group: dist.ProcessGroup, inner: Kernel | None = None) -> Kernel:
    """A kernel for tensors of this rank's tokens, as `split` gives them out over `group`.

    `kind`: ring, allgather or ulysses. `inner` (ulysses): computes attention over whole sequences in place of
    `whole_attention`, at the price of one more all-gather, of positions. Raises LayoutError for another kind.
    """
    if kind not in CONTEXT_KINDS:
        raise LayoutError(f"Unknown kind of context parallelism {kind!r}.", CONTEXT_KINDS)
    kernel = _ulysses(group, inner) if kind == "ulysses" else _sequence(kind, group)
    # Transfers that run beside compute are no graph: a compiled block breaks around them.
    return torch.compiler.disable(kernel)  # type: ignore[no-any-return, no-untyped-call]


def _sequence(kind: str, group: dist.ProcessGroup) -> Kernel:
    attention = ring_attention if kind == "ring" else allgather_attention

    def kernel(
        q: Tensor, k: Tensor, v: Tensor, *, causal: bool, window: int, documents: Tensor | None, positions: Tensor,
        scale: float | None = None,
    ) -> Tensor:  # fmt: skip
        seats = take_seats(group, kind, q, causal, window, scale)
        return attention(q, k, v, seats, gather_documents(documents, seats))

    return kernel


def _ulysses(group: dist.ProcessGroup, inner: Kernel | None) -> Kernel:
    def kernel(
        q: Tensor, k: Tensor, v: Tensor, *, causal: bool, window: int, documents: Tensor | None, positions: Tensor,
        scale: float | None = None,
    ) -> Tensor:  # fmt: skip
        if documents is not None:
            documents = gather_sequence(documents, group)
        if inner is not None:
            positions = gather_sequence(positions, group)
        return ulysses_attention(
            q, k, v, group, inner or whole_attention, causal=causal, window=window, documents=documents,
            positions=positions, scale=scale,
        )  # fmt: skip

    return kernel
