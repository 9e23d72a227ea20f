"""Moe: a mixture-of-experts feed-forward part (arXiv:1701.06538), routed as in Mixtral, Qwen-MoE and DeepSeek."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshwright.train.models.architecture import Architecture
from meshwright.train.models.attention import Context
from meshwright.train.models.balance import attach, balance_loss
from meshwright.train.models.choice import Router, choose, scores_of
from meshwright.train.models.experts import Experts, local_exchange
from meshwright.train.models.mlp import Mlp
from meshwright.train.models.unset import Linear

Exchange = Callable[[Tensor, Tensor, Tensor, Experts], Tensor]
"""(x [n, hidden], expert_of [n, k], weights [n, k], experts) → the experts' weighted sum [n, hidden]."""


def _same(x: Tensor) -> Tensor:
    return x


class Moe(nn.Module):
    """Every token visits the k experts that `choice` finds, and the shared one where there is one."""

    def __init__(self, a: Architecture, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        m, e = a.model, a.model.experts
        assert e is not None
        self.per_token = e.per_token
        self.renormalise = a.renormalise
        self.routing = a.routing
        self.capacity_factor = a.capacity_factor
        self.balance_coefficient = a.balance_coefficient
        self.balance_scale = 1.0
        """Weight of one sequence's loss: 1 / sequences of the whole step, times the loss scale of fp16."""
        self.exchange: Exchange = local_exchange
        self.count_reduce: Callable[[Tensor], Tensor] = _same
        """Sums counts [batch, experts] over the ranks that share these sequences."""
        self.local_rows: Callable[[Tensor], Tensor] = _same
        """Cuts `sequence_of` to the rows of x that this rank holds."""
        self.router = Router(m.hidden, e.count, a.routing, device, dtype)
        self.experts = Experts(a, device, dtype)
        self.shared = Mlp(a, e.shared_ffn_hidden, device, dtype) if e.shared_ffn_hidden else None
        self.shared_gate = Linear(m.hidden, 1, False, device, dtype) if e.shared_gate else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """[n, hidden] → [n, hidden]; x is the rows of the context's tokens that `local_rows` keeps."""
        expert_of, weights, scores = self.route(x)
        out = self.exchange(x, expert_of, weights, self.experts)
        if self.shared is not None:
            shared = self.shared(x)
            out = out + (shared if self.shared_gate is None else torch.sigmoid(self.shared_gate(x)) * shared)
        if self.balance_coefficient and context.sequence_of is not None:
            rows, sequences = self.local_rows(context.sequence_of), context.positions.shape[0]
            # Sigmoids do not add up to 1 (arXiv:2412.19437 equation 19).
            probabilities = scores if self.routing.scores == "softmax" else scores / scores.sum(-1, keepdim=True)
            loss = balance_loss(probabilities, expert_of, rows, sequences, self.count_reduce)
            out = attach(out, loss * self.balance_coefficient, self.balance_scale)
        return out

    def route(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Experts [n, k], their weights [n, k] in x's dtype, and all scores [n, experts] in float32 at least."""
        scores = scores_of(self.router(x), self.routing)
        expert_of, weights = choose(scores, self.router.correction, self.per_token, self.routing)
        if self.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.routing.scale != 1.0:
            weights = weights * self.routing.scale
        if self.capacity_factor is not None:
            weights = weights * self._kept(expert_of, scores.shape[1])
        return expert_of, weights.to(x.dtype), scores

    def _kept(self, expert_of: Tensor, experts: int) -> Tensor:
        """1 where a visit is among the first `capacity_factor` · n · k / experts of its expert on this rank, else 0."""
        assert self.capacity_factor is not None
        most = math.ceil(self.capacity_factor * expert_of.numel() / experts)
        visits = functional.one_hot(expert_of.flatten(), experts)
        place = (visits.cumsum(0) * visits).sum(-1)
        return (place <= most).view_as(expert_of)
