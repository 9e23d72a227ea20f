"""Load-balancing loss of a mixture (Switch, arXiv:2101.03961 equations 4 to 6), a sequence at a time.

For one sequence of S tokens: experts / k · Σ_e f_e · P_e, where f_e is the share of its tokens that visit expert e (the
f_e sum to k) and P_e the mean router probability of e. It is 1 when all is even. Taken by sequence, the loss is the
same whichever ranks the sequences lie on, and a rank that holds a piece needs only the whole sequence's counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def balance_loss(
    probabilities: Tensor,
    expert_of: Tensor,
    sequence_of: Tensor,
    sequences: int,
    count_reduce: Callable[[Tensor], Tensor],
) -> Tensor:
    """This rank's share of the sum over its sequences; the shares of the ranks that hold pieces add up.

    `probabilities` [n, experts], `expert_of` [n, k], `sequence_of` [n] with the index of each token's sequence, below
    `sequences`. `count_reduce` sums counts over the ranks that hold pieces of these sequences; they carry no gradient.
    """
    experts, k = probabilities.shape[1], expert_of.shape[1]
    with torch.no_grad():
        bins = sequence_of[:, None] * experts + expert_of
        counts = torch.bincount(bins.flatten(), minlength=sequences * experts).view(sequences, experts)
        counts = count_reduce(counts)
        # Every token visits k experts, so the counts also tell how long a sequence is.
        tokens = (counts.sum(-1, keepdim=True) / k).clamp(min=1).to(probabilities.dtype)
        weights = counts.to(probabilities.dtype) / tokens.square() * (experts / k)
    return (probabilities * weights[sequence_of]).sum()


class _Attach(torch.autograd.Function):
    """Hands x through; in backward the loss receives `scale`, as if it had been added to the model's loss."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, scale: float) -> Tensor:
        ctx.scale, ctx.dtype = scale, loss.dtype
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradients[0], torch.full((), ctx.scale, dtype=ctx.dtype, device=gradients[0].device), None


def attach(x: Tensor, loss: Tensor, scale: float) -> Tensor:
    """`x`, with the gradient of `scale` · `loss` added in its backward pass, so that the loss travels nowhere."""
    return _Attach.apply(x, loss, scale)  # type: ignore[no-any-return,no-untyped-call]
