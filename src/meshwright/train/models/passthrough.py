"""Passthrough: what stands in a pipeline stage for a module that another stage holds."""

from __future__ import annotations

from torch import Tensor, nn


class Passthrough(nn.Module):
    """Returns its first argument and holds nothing."""

    def forward(self, x: Tensor, *others: object) -> Tensor:
        """`x`, unchanged."""
        return x
