"""Rows spread to visits and back, with gradients that are the same in every run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def inverse(order: Tensor) -> Tensor:
    """The permutation that undoes `order`."""
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return back


class _Spread(torch.autograd.Function):
    """Indexing whose backward gathers too: no atomic additions, so gradients are the same in every run."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(order)
        ctx.k = k
        return x[order // k if k > 1 else order]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        back = gradients[0][inverse(order)]
        return back.view(len(back) // ctx.k, ctx.k, back.shape[-1]).sum(1) if ctx.k > 1 else back, None, None


def spread_rows(x: Tensor, order: Tensor, k: int) -> Tensor:
    """Row `order[i] // k` of x for each i; `order` is a permutation of the n · k visits of n rows."""
    return _Spread.apply(x, order, k)  # type: ignore[no-any-return,no-untyped-call]
