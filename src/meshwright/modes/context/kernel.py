"""What an attention kernel is called with."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Kernel(Protocol):
    """Attention of q [batch, heads, seq, dim] to k and v [batch, kv_heads, seq, dim]; v may have another dim."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        causal: bool,
        window: int,
        documents: Tensor | None,
        positions: Tensor,
        scale: float | None = None,
    ) -> Tensor:
        """The values' weighted means. `window`: tokens seen, itself among them; 0: all.

        `scale`: what scores are multiplied by; None: 1/√dim.

        `documents` and `positions` are [batch, seq]; tokens see their own document only.
        """
        ...
