"""Attention written out: any device and dtype, all scores in memory. The reference for the fused kernels.

With P = exp(S - lse) and S = scale · Q Kᵀ + bias (arXiv:2205.14135, appendix B.2):
out = P V;  dV = Pᵀ dOut;  dS = P ∘ (dOut Vᵀ - rowsum(dOut ∘ Out));  dQ = scale · dS K;  dK = scale · dSᵀ Q.
"""

from __future__ import annotations

import torch
from torch import Tensor

from meshwright.modes.context.heads import fold_heads, repeat_heads


class MathKernel:
    """Computes in float32 where inputs are shorter, so that sums keep their digits."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        scores = _scores(q, k, bias, causal, scale)
        lse = scores.logsumexp(-1)
        weights = torch.exp(scores - lse.unsqueeze(-1))
        return (weights @ _wide(v, q)).to(q.dtype), lse

    @staticmethod
    def backward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: Tensor | None, causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        groups = q.shape[1] // k.shape[1]
        weights = torch.exp(_scores(q, k, bias, causal, scale) - lse.unsqueeze(-1))
        wide = weights.dtype
        grad = grad.to(wide)
        delta = (grad * out.to(wide)).sum(-1, keepdim=True)
        in_scores = weights * (grad @ _wide(v, q).mT - delta) * scale
        dq = in_scores @ _wide(k, q)
        dk = fold_heads(in_scores.mT @ q.to(wide), groups)
        dv = fold_heads(weights.mT @ grad, groups)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def _scores(q: Tensor, k: Tensor, bias: Tensor | None, causal: bool, scale: float) -> Tensor:
    """[batch, heads, queries, keys]"""
    scores = _widen(q) @ _wide(k, q).mT * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores


def _widen(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _wide(x: Tensor, q: Tensor) -> Tensor:
    return repeat_heads(_widen(x), q.shape[1] // x.shape[1])
