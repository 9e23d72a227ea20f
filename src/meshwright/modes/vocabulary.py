"""Vocabulary-parallel cross-entropy (arXiv:1909.08053 section 3): no rank ever holds whole logits.

Sent a micro-batch of T tokens: an all-reduce of T maxima and one of 2·T sums, in fp32 (fp64 for fp64 logits).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

IGNORED = -100


def cross_entropy_sum(
    logits: torch.Tensor, targets: torch.Tensor, group: dist.ProcessGroup | None = None, vocabulary: int = 0
) -> torch.Tensor:
    """The sum of the token losses, the same number on every rank of `group`.

    `logits` [T, rows] are this rank's rows of the vocabulary, of `vocabulary` rows in all: equal shares, the last ones
    padded. `targets` [T] hold token ids, or IGNORED. Computed in fp32 at least.
    """
    if group is None or group.size() == 1:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return F.cross_entropy(wide, targets, ignore_index=IGNORED, reduction="sum")
    return _Parallel.apply(logits, targets, group, vocabulary)  # type: ignore[no-any-return, no-untyped-call]


class _Parallel(torch.autograd.Function):
    """Keeps one tensor [T, rows], the softmax, which becomes the gradient in place."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, group: dist.ProcessGroup, vocabulary: int
    ) -> torch.Tensor:
        rows, dtype = logits.size(1), torch.promote_types(logits.dtype, torch.float32)
        start = group.rank() * rows
        real = max(0, min(rows, vocabulary - start))
        # Not -inf on a rank of padding alone, whose differences would be NaN.
        lowest = torch.finfo(dtype).min
        peak = logits[:, :real].amax(1).to(dtype) if real else logits.new_full((len(logits),), lowest, dtype=dtype)
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=group)
        here = (targets >= start) & (targets < start + real)
        row = (targets - start).masked_fill(~here, 0)
        found = logits.gather(1, row[:, None])[:, 0].to(dtype).masked_fill(~here, 0)
        share = logits.to(dtype, copy=True).sub_(peak[:, None]).exp_()
        share[:, real:] = 0
        sums = torch.stack((share.sum(1), found))
        dist.all_reduce(sums, group=group)
        counted = targets != IGNORED
        share.div_(sums[0][:, None])
        ctx.save_for_backward(share, row, here, counted)
        ctx.dtype = logits.dtype
        return (sums[0].log() + peak - sums[1]).masked_fill(~counted, 0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        share, row, here, counted = ctx.saved_tensors
        share.scatter_add_(1, row[:, None], -here[:, None].to(share.dtype))
        return share.mul_((gradient * counted)[:, None]).to(ctx.dtype), None, None, None
