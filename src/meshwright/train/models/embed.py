"""Embed: token ids to hidden states, with learned positions where the model has them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meshwright.train.models.architecture import Architecture
from meshwright.train.models.unset import Embedding


class Embed(nn.Module):
    """`tokens` (vocab × hidden) and, for learned positions, `positions` (position rows × hidden)."""

    def __init__(self, a: Architecture, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        m = a.model
        self.tokens = Embedding(m.vocab, m.hidden, device=device, dtype=dtype)
        learned = m.positions == "learned"
        self.positions = Embedding(m.position_rows, m.hidden, device=device, dtype=dtype) if learned else None

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Token ids and positions [batch, seq] → [batch · seq, hidden]."""
        x: Tensor = self.tokens(tokens.flatten())
        return x if self.positions is None else x + self.positions(positions.flatten())
