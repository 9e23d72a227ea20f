"""Attention over whole sequences on one rank: masks are built in parts of rows, never seq × seq."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from meshwright.modes.context.core import Rule, add_block, add_block_gradients, wide_zeros
from meshwright.modes.context.merge import Merge


def whole_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, window: int, documents: Tensor | None, positions: Tensor | None,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """q [batch, heads, seq, dim], k and v [batch, kv_heads, seq, dim] → the same with v's dim. `positions` do not
    matter here."""
    rule = Rule(causal, window if 0 < window < q.shape[2] else 0, scale)
    return _Whole.apply(q, k, v, documents, rule)  # type: ignore[no-any-return, no-untyped-call]


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, documents: Tensor | None, rule: Rule) -> Tensor:
        merge, runs = Merge(q, v.shape[-1]), ((0, q.shape[2]),)
        add_block(merge, q, k, v, runs, runs, rule, documents)
        out, lse = merge.result()
        ctx.save_for_backward(q, k, v, out, lse, documents)
        ctx.rule = rule
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, lse, documents = ctx.saved_tensors
        dq, dk, dv, runs = wide_zeros(q), wide_zeros(k), wide_zeros(v), ((0, q.shape[2]),)
        add_block_gradients(dq, dk, dv, (grad, q, out, lse), k, v, runs, runs, ctx.rule, documents)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None
