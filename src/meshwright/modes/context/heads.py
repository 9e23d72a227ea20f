"""Grouped heads (arXiv:2305.13245): query head h reads key/value head h // groups."""

from __future__ import annotations

from torch import Tensor


def repeat_heads(x: Tensor, copies: int) -> Tensor:
    """[batch, heads, seq, dim] → [batch, heads × copies, seq, dim], copies of a head side by side."""
    return x if copies == 1 else x.repeat_interleave(copies, dim=1)


def fold_heads(x: Tensor, copies: int) -> Tensor:
    """The gradient of `repeat_heads`: sums over the copies of each head."""
    return x if copies == 1 else x.reshape(x.shape[0], -1, copies, *x.shape[2:]).sum(2)
