"""Batch: the token ids of some sequences, with what a model needs to read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # whoever only prepares data does without torch
    import torch

IGNORED = -100
"""A target that the loss does not count (the value PyTorch's and transformers' losses skip)."""


@dataclass(frozen=True)
class Batch:
    """Sequences of one micro-batch on one data-parallel rank; every tensor is [sequences, tokens], int64."""

    tokens: torch.Tensor
    targets: torch.Tensor
    """The next token of each position, or IGNORED."""
    positions: torch.Tensor
    """Of each token in its sequence (in its document where documents do not see each other)."""
    documents: torch.Tensor | None = None
    """The document that each token belongs to; None: the whole sequence is one."""

    def to(self, device: torch.device) -> Batch:
        """The same on `device`; from page-locked memory it is copied while the device computes."""
        if self.tokens.device == device:
            return self
        tensors = (self.tokens, self.targets, self.positions, self.documents)
        return Batch(*(None if one is None else one.to(device, non_blocking=True) for one in tensors))  # type: ignore[arg-type]

    @property
    def target_tokens(self) -> int:
        """Targets that the loss counts."""
        return int((self.targets != IGNORED).sum())
