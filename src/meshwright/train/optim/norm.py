"""The one gradient norm and the one clip, over every axis of every layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.modes.parts import Part
from meshwright.train.optim.reduce import accumulation_dtype, all_sum, square_sums

_EPS = 1e-6
"""Keeps the coefficient of a zero gradient finite; torch.nn.utils.clip_grad_norm_ has the same."""


@torch.no_grad()
def global_norm(parts: Sequence[Part]) -> Tensor:
    """The 2-norm of the whole model's gradient: a scalar, the same bits on every rank, on the gradients' device.

    √ Σ over parts of Σ g² / copies, summed over the world by one all-reduce. A tied copy counts zero, because the
    parameter it copies is counted. float32, or float64 where the gradients are. Never waits for the device.
    Collective over the world: every rank must call it, with gradients or without.
    """
    held = [(part, part.gradient) for part in parts if not part.tied_copy]
    counted = [(part, gradient) for part, gradient in held if gradient is not None and gradient.numel()]
    home = parts[0].parameter.device
    dtype = accumulation_dtype(parts[0].parameter.dtype)
    squares = square_sums([gradient for _, gradient in counted], dtype)
    if squares:
        # Scaled here and not by a tensor of weights, which would have to be copied to the device in every step.
        torch._foreach_div_(squares, [float(part.copies) for part, _ in counted])
    terms = [square.to(home) for square in squares] or [torch.zeros((), dtype=dtype, device=home)]
    world = dist.group.WORLD if dist.is_initialized() else None
    return all_sum(torch.stack(terms).sum(), world).sqrt()


@torch.no_grad()
def clip(parts: Sequence[Part], norm: Tensor, max_norm: float | None, *, scale: float = 1.0) -> None:
    """Multiply all gradients by min(1, max_norm / norm), in place, without waiting for the device.

    `norm` is `global_norm(parts)`. Where the loss was multiplied by `scale`, gradients and `norm` are `scale` times
    too large: they are divided by it in the same pass. `max_norm` None: no clipping. Gradients whose norm is not
    finite are left as they are, so that what overflowed can still be seen.
    """
    if max_norm is None and scale == 1.0:
        return
    factor = torch.ones_like(norm) if max_norm is None else (max_norm / (norm / scale + _EPS)).clamp(max=1.0)
    factor = torch.where(norm.isfinite(), factor / scale, torch.ones_like(norm))
    by_device: dict[torch.device, list[Tensor]] = {}
    for part in parts:
        gradient = part.gradient
        if gradient is not None and gradient.numel():
            by_device.setdefault(gradient.device, []).append(gradient)
    for device, gradients in by_device.items():
        torch._foreach_mul_(gradients, factor.to(device))
