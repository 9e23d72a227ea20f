"""Ring attention: keys and values travel round the context ranks, one block a step.

Split: the sequence; each of c ranks holds 1/c of every sequence's tokens in all layers (`split.py`: head and tail).
Sent, a layer and micro-batch, by each rank, with K = batch × seq/c × kv_heads × the mean of the two widths numbers:
    forward: (c-1) × 2 K numbers in the activations' dtype (send/recv to the next rank);
    backward: the same again, and (c-1) × 2 K numbers of gradients in float32 (float64 for float64).
Each step's transfer runs while the block at hand is computed; a causal mask halves that work, alike on all ranks.
Saves: activations and logits fall to 1/c; never more than two blocks of keys and values besides the rank's own.
Use: long sequences between machines; transfers hide behind attention, which grows with seq² / c. Not: short
sequences (attention too short to hide c-1 steps), where all-gather sends the same in one collective.
Paper: Liu et al., Ring Attention, arXiv:2310.01889. Partial sums: Dao et al., arXiv:2205.14135.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from meshwright.modes.context.core import add_block, add_block_gradients, sides, wide_zeros
from meshwright.modes.context.merge import Merge
from meshwright.modes.context.seats import Seats

_GRADIENTS = 1
"""Tag of gradients on their way, which overtake no keys and values."""


def ring_attention(q: Tensor, k: Tensor, v: Tensor, seats: Seats, documents: Tensor | None) -> Tensor:
    """This rank's rows of attention: q [batch, heads, seq/c, dim], k and v [batch, kv_heads, seq/c, dim] → with v's.

    `documents` [batch, seq]: of the whole sequence, in its order.
    """
    return _Ring.apply(q, k, v, documents, seats)  # type: ignore[no-any-return, no-untyped-call]


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, documents: Tensor | None, seats: Seats) -> Tensor:
        merge, rows = Merge(q, v.shape[-1]), seats.runs(seats.rank)
        block, coming, width = torch.cat((k, v), -1), None, k.shape[-1]
        for step in range(seats.ranks):
            if coming is not None:
                block = coming.wait()
            coming = _Transfer(block, seats) if step + 1 < seats.ranks else None
            keys = seats.runs((seats.rank - step) % seats.ranks)
            add_block(merge, q, *sides(block, width), rows, keys, seats.rule, documents)
        out, lse = merge.result()
        ctx.save_for_backward(q, k, v, out, lse, documents)
        ctx.seats = seats
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, lse, documents = ctx.saved_tensors
        seats: Seats = ctx.seats
        saved, rows = (grad, q, out, lse), seats.runs(seats.rank)
        block, coming, carried, width = torch.cat((k, v), -1), None, None, k.shape[-1]
        dq, own = wide_zeros(q), wide_zeros(block)
        for step in range(seats.ranks):
            if coming is not None:
                block = coming.wait()
            coming = _Transfer(block, seats) if step + 1 < seats.ranks else None
            keys = seats.runs((seats.rank - step) % seats.ranks)
            found = own if step == 0 else wide_zeros(block)
            sums, held = sides(found, width), sides(block, width)
            add_block_gradients(dq, *sums, saved, *held, rows, keys, seats.rule, documents)
            if step:
                # The sum so far comes from the rank that had this block before; after the last step it goes home.
                found = found if carried is None else found.add_(carried.wait())
                carried = _Transfer(found, seats, _GRADIENTS)
        if carried is not None:
            own += carried.wait()
        dk, dv = sides(own, width)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None


class _Transfer:
    """A block on its way to the next rank, and the previous rank's on its way here."""

    def __init__(self, block: Tensor, seats: Seats, tag: int = 0) -> None:
        self._block = block  # must live until it has been sent
        self._received = torch.empty_like(block)
        to, source = (seats.rank + 1) % seats.ranks, (seats.rank - 1) % seats.ranks
        self._works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, block, group=seats.group, group_peer=to, tag=tag),
            dist.P2POp(dist.irecv, self._received, group=seats.group, group_peer=source, tag=tag),
        ])  # fmt: skip

    def wait(self) -> Tensor:
        """The block received, once both have arrived."""
        for work in self._works:
            work.wait()
        return self._received
