"""Ulysses: around attention, ranks trade heads for tokens, so that each sees whole sequences for some heads.

Split: the sequence, in consecutive parts; inside attention the heads. c must divide the query heads. Key/value heads
are copied to m = lcm(kv_heads, c) where c does not divide them; the gradients of copies are summed.
Sent, a layer and micro-batch, by each rank, with t = batch × seq/c tokens, all in the activations' dtype:
    forward: two all-to-alls, (c-1)/c × t × (heads + 2 m) × head_dim numbers in, (c-1)/c × t × heads × head_dim out;
    backward: the same two.
Saves: activations and logits fall to 1/c. Any attention kernel works, and causal work is balanced by itself.
Use: many heads, fast links: bytes a rank fall with c, where those of ring and all-gather do not. Not: more ranks than
heads (tensor parallelism takes from the same heads), or few key/value heads, whose copies are sent too.
Paper: Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.modes import comm
from meshwright.modes.context.heads import repeat_heads
from meshwright.modes.context.kernel import Kernel
from meshwright.spec.errors import LayoutError


def ulysses_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    group: dist.ProcessGroup,
    inner: Kernel,
    *,
    causal: bool,
    window: int,
    documents: Tensor | None,
    positions: Tensor,
    scale: float | None = None,
) -> Tensor:
    """This rank's rows of attention: q [batch, heads, seq/c, dim], k and v [batch, kv_heads, seq/c, dim] → with v's.

    `inner` computes attention of whole sequences on heads/c heads; `documents` and `positions` [batch, seq] are of the
    whole sequence. Raises LayoutError when the ranks do not divide the heads.
    """
    ranks = group.size()
    batch, heads, seq, _ = q.shape
    if heads % ranks:
        raise LayoutError(
            f"Ulysses gives each of {ranks} context ranks as many heads; there are {heads} on a tensor rank.",
            [*(f"cp{n}:ulysses" for n in range(ranks - 1, 0, -1) if heads % n == 0), f"cp{ranks}:ring"],
        )
    copies = head_copies(k.shape[1], ranks)
    k, v = repeat_heads(k, copies), repeat_heads(v, copies)
    dims = [x.shape[-1] for x in (q, k, v)]
    counts = [x.shape[1] // ranks for x in (q, k, v)]
    widths = [count * dim for count, dim in zip(counts, dims, strict=True)]
    # [ranks, batch, seq/c, all numbers of a token]: what goes to one rank lies together.
    packed = torch.cat([_by_rank(x, ranks) for x in (q, k, v)], dim=-1)
    whole = _trade(packed, group).transpose(0, 1).flatten(1, 2)  # [batch, seq, all numbers of a token]
    q, k, v = (
        part.reshape(batch, -1, count, dim).transpose(1, 2)
        for part, count, dim in zip(torch.split(whole, widths, -1), counts, dims, strict=True)
    )
    out = inner(q, k, v, causal=causal, window=window, documents=documents, positions=positions, scale=scale)
    leaving = out.reshape(batch, heads // ranks, ranks, seq, dims[2]).permute(2, 0, 1, 3, 4).contiguous()
    back = _trade(leaving, group)  # [ranks, batch, heads a rank, seq/c, dim], ranks in the order of heads
    return back.transpose(0, 1).flatten(1, 2)


def _by_rank(x: Tensor, ranks: int) -> Tensor:
    """[batch, heads, seq/c, dim] → [ranks, batch, seq/c, heads a rank · dim]."""
    batch, _, seq, dim = x.shape
    return x.reshape(batch, ranks, -1, seq, dim).permute(1, 0, 3, 2, 4).flatten(3)


def head_copies(kv_heads: int, ranks: int) -> int:
    """Copies of each key/value head, so that ranks divide them: lcm(kv_heads, ranks) / kv_heads."""
    return math.lcm(kv_heads, ranks) // kv_heads


def gather_sequence(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[batch, seq/c] of each rank → [batch, seq]: one all-gather."""
    parts = comm.all_gather(x.unsqueeze(0), group)
    return parts.transpose(0, 1).flatten(1, 2)


class _Trade(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_to_all(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _all_to_all(grad.contiguous(), ctx.group), None


def _trade(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """x[i] goes to rank i; result[j] came from rank j. The gradient goes the same way back."""
    return _Trade.apply(x, group)  # type: ignore[no-any-return, no-untyped-call]


def _all_to_all(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x, group=group)
    return out
