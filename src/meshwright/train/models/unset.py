"""Linear and Embedding whose numbers stay unset: `init.py` or a checkpoint fills them.

PyTorch's own start by drawing numbers that would be thrown away; on the meta device that alone costs seconds.
"""

from __future__ import annotations

from torch import nn


class Linear(nn.Linear):
    """nn.Linear without a first draw."""

    head_rows: int | None = None
    """Output features of one head, where they are heads of another width than the attention's others."""

    def reset_parameters(self) -> None:
        """Leaves the numbers as they are."""


class Embedding(nn.Embedding):
    """nn.Embedding without a first draw."""

    def reset_parameters(self) -> None:
        """Leaves the numbers as they are."""
