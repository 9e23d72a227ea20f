"""All-gather attention: every rank fetches all keys and values of the layer at once.

Split: the sequence; each of c ranks holds 1/c of every sequence's tokens in all layers (`split.py`: head and tail).
Sent, a layer and micro-batch, by each rank, with K = batch × seq/c × kv_heads × the mean of the two widths numbers:
    forward: one all-gather, (c-1) × 2 K numbers in the activations' dtype;
    backward: the same again, and one reduce-scatter of (c-1) × 2 K numbers in float32 (float64 for float64).
Saves: activations and logits fall to 1/c; one layer's whole keys and values live while it is computed, not longer.
Use: grouped heads (keys and values are small), masks by document, fast links: one collective in place of c-1. Not:
sequences whose keys and values of one layer do not fit, or slow links, which nothing hides here.
Paper: Llama 3, arXiv:2407.21783 section 3.3.2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from meshwright.modes import comm
from meshwright.modes.context.core import add_block, add_block_gradients, sides, wide_zeros
from meshwright.modes.context.merge import Merge
from meshwright.modes.context.seats import Seats
from meshwright.modes.context.split import apart, natural

_SEQ = 2
"""Dimension of tokens in keys and values side by side [batch, kv_heads, seq, dims of both]."""


def allgather_attention(q: Tensor, k: Tensor, v: Tensor, seats: Seats, documents: Tensor | None) -> Tensor:
    """This rank's rows of attention: q [batch, heads, seq/c, dim], k and v [batch, kv_heads, seq/c, dim] → with v's.

    `documents` [batch, seq]: of the whole sequence, in its order.
    """
    return _AllGather.apply(q, k, v, documents, seats)  # type: ignore[no-any-return, no-untyped-call]


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, documents: Tensor | None, seats: Seats) -> Tensor:
        merge, whole = Merge(q, v.shape[-1]), _gather(k, v, seats)
        rows, keys = seats.runs(seats.rank), ((0, seats.seq_len),)
        add_block(merge, q, *sides(whole, k.shape[-1]), rows, keys, seats.rule, documents)
        out, lse = merge.result()
        ctx.save_for_backward(q, k, v, out, lse, documents)
        ctx.seats = seats
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, lse, documents = ctx.saved_tensors
        seats: Seats = ctx.seats
        whole = _gather(k, v, seats)
        rows, keys = seats.runs(seats.rank), ((0, seats.seq_len),)
        dq, found = wide_zeros(q), wide_zeros(whole)
        saved, width = (grad, q, out, lse), k.shape[-1]
        sums, held = sides(found, width), sides(whole, width)
        add_block_gradients(dq, *sums, saved, *held, rows, keys, seats.rule, documents)
        own = comm.reduce_scatter(apart(found, seats.ranks, seats.kind, _SEQ), seats.group).squeeze(0)
        dk, dv = sides(own, width)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None


def _gather(k: Tensor, v: Tensor, seats: Seats) -> Tensor:
    """[batch, kv_heads, seq, dims of both]: all ranks' keys and values in the order of the sequence."""
    parts = comm.all_gather(torch.cat((k, v), -1).unsqueeze(0), seats.group)
    return natural(parts, seats.kind, _SEQ)
