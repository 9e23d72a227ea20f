"""Rotary positions (RoFormer, arXiv:2104.09864 equation 15) with the scalings of long-context models.

Frequencies follow `transformers`, so that its checkpoints mean the same here: of a head's `dim` numbers, i and
i + dim/2 are one pair that turns by position · frequency i; where pairs are neighbours (DeepSeek), 2i and 2i + 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROPE_KINDS = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class Rope:
    """What the frequencies depend on."""

    theta: float = 10000.0
    kind: str = "default"
    """One of ROPE_KINDS."""
    factor: float = 1.0
    """By how much the context was stretched."""
    original_positions: int = 0
    """Context length before stretching (llama3, yarn)."""
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    """What cosine and sine are multiplied by (yarn)."""
    mscale_all_dim: float = 0.0
    """Of latent attention: how much stretching scales the scores of attention besides."""
    neighbours: bool = False
    """The numbers 2i and 2i + 1 are a pair, not i and i + dim/2."""

    @property
    def score_factor(self) -> float:
        """What the scores of attention are multiplied by besides."""
        return yarn_scale(self.factor, self.mscale_all_dim) ** 2


def yarn_scale(factor: float, by: float) -> float:
    """0.1 · by · ln(factor) + 1 (arXiv:2309.00071 equation 22); 1 for a context that was not stretched."""
    return 0.1 * by * math.log(factor) + 1.0


def frequencies(rope: Rope, dim: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The dim/2 angles a position, in radians."""
    exponents = torch.arange(0, dim, 2, dtype=torch.int64, device=device).to(dtype) / dim
    plain = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, plain)
    if rope.kind == "yarn":
        return _yarn(rope, plain, dim)
    return plain


def _llama3(rope: Rope, plain: Tensor) -> Tensor:
    """Llama 3.1: long waves are stretched, short ones kept, those between blended (the reference code of Llama 3.1)."""
    wave = 2 * math.pi / plain
    low = rope.original_positions / rope.low_freq_factor
    high = rope.original_positions / rope.high_freq_factor
    smooth = (rope.original_positions / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    stretched = plain / rope.factor
    between = (1 - smooth) * stretched + smooth * plain
    return torch.where(wave > low, stretched, torch.where(wave < high, plain, between))


def _yarn(rope: Rope, plain: Tensor, dim: int) -> Tensor:
    """YaRN (arXiv:2309.00071 section 3.2): a ramp over dimensions from kept to stretched frequencies."""

    def dimension(rotations: float) -> float:
        waves = rope.original_positions / (rotations * 2 * math.pi)
        return dim * math.log(waves) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = float(math.floor(low)), float(math.ceil(high))
    low, high = max(low, 0.0), min(high, dim - 1.0)
    if low == high:
        high += 0.001
    steps = torch.arange(dim // 2, device=plain.device, dtype=plain.dtype)
    ramp = ((steps - low) / (high - low)).clamp(0, 1)
    return plain / rope.factor * ramp + plain * (1 - ramp)


def tables(rope: Rope, dim: int, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine [batch, seq, 1, dim/2] of each position's angles, in `dtype` (float32 or float64)."""
    angles = positions.to(dtype)[..., None, None] * frequencies(rope, dim, positions.device, dtype)
    return angles.cos() * rope.attention_factor, angles.sin() * rope.attention_factor


class _Rotate(torch.autograd.Function):
    """Turning by minus the angle is the gradient of turning by it, so nothing but the tables is kept for backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(gradients[0], cos, -sin), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` [batch, seq, heads, dim] turned by its positions' angles, computed in the tables' precision."""
    return _Rotate.apply(x, cos, sin)  # type: ignore[no-any-return,no-untyped-call]


def parted(x: Tensor) -> Tensor:
    """`x` […, dim] whose pairs are neighbours, with the first ones of all pairs before the second ones.

    Queries and keys in one order have the same scores in any.
    """
    return x.view(*x.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
