"""Collectives with gradients: what a rank sends forward, and what its mirror sends backward.

All act on dim 0. Written on `torch.distributed` itself, which dispatches in microseconds where DTensor takes tens.

| function | forward | backward |
| --- | --- | --- |
| `gather` | all-gather | reduce-scatter |
| `scatter_sum` | reduce-scatter | all-gather |
| `copy` | nothing | all-reduce |
| `all_sum` | all-reduce | nothing |
| `split` | keeps this rank's slice | zeros around the slice (its gradient is partial) |
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def all_gather(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The ranks' tensors [n, …] joined along dim 0: [ranks·n, …]."""
    out = x.new_empty((x.size(0) * group.size(), *x.shape[1:]))
    dist.all_gather_single(out, x.contiguous(), group=group)
    return out


def reduce_scatter(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's slice of the sum over ranks, along dim 0: [n, …] → [n / ranks, …]."""
    out = x.new_empty((x.size(0) // group.size(), *x.shape[1:]))
    dist.reduce_scatter_single(out, x.contiguous(), group=group)
    return out


def all_reduce(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The sum over ranks, in a new tensor."""
    out = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(out, group=group)
    return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return all_gather(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return reduce_scatter(gradient, ctx.group), None


class _ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return reduce_scatter(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_gather(gradient, ctx.group), None


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_reduce(gradient, ctx.group), None


class _AllSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return all_reduce(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def gather(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """All-gather along dim 0; the gradient, partial on each rank, is reduce-scattered."""
    return x if group.size() == 1 else _Gather.apply(x, group)  # type: ignore[no-untyped-call]


def scatter_sum(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Reduce-scatter along dim 0; the gradient is all-gathered."""
    return x if group.size() == 1 else _ScatterSum.apply(x, group)  # type: ignore[no-untyped-call]


def copy(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """`x`, which all ranks hold alike; its gradient, partial on each rank, is all-reduced."""
    return x if group.size() == 1 else _Copy.apply(x, group)  # type: ignore[no-untyped-call]


def all_sum(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The sum over ranks; the gradient, alike on all ranks, passes through."""
    return x if group.size() == 1 else _AllSum.apply(x, group)  # type: ignore[no-untyped-call]


def split(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's slice along dim 0 of `x`, which all ranks hold alike."""
    return x if group.size() == 1 else x.chunk(group.size())[group.rank()]
