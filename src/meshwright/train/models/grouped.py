"""Experts as grouped matrix products: one kernel for all experts, and no count ever travels to the host."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from meshwright.modes.accelerator import on_accelerator

ALIGN = 8
"""Rows of a group are filled up to a multiple of this, and to this at least.

Kernels ask for groups of 16 bytes, and empty groups have hung or returned arbitrary gradients in backward
(pytorch issues 152668 and 172439)."""


def can_group(x: Tensor, weight: Tensor) -> bool:
    """Whether the grouped product takes these: bfloat16 on a GPU, rows of a multiple of 16 bytes."""
    aligned = weight.shape[1] % 8 == 0 and weight.shape[2] % 8 == 0
    return on_accelerator(x.device) and x.dtype == torch.bfloat16 == weight.dtype and aligned


def grouped_experts(
    x: Tensor, counts: Tensor, gate: Tensor, up: Tensor, down: Tensor, act: Callable[[Tensor], Tensor]
) -> Tensor:
    """down(act(gate(x)) · up(x)) of each row's expert. x [n, hidden] sorted by expert, counts [experts].

    gate and up [experts, width, hidden], down [experts, hidden, width].
    """
    places, ends, rows = padded(counts, len(x))
    spread = x.new_zeros(rows, x.shape[1]).index_copy(0, places, x)

    def product(left: Tensor, weight: Tensor) -> Tensor:
        return torch._grouped_mm(left, weight.transpose(-2, -1), offs=ends)

    out = product(act(product(spread, gate)) * product(spread, up), down)
    return out.index_select(0, places)


def padded(counts: Tensor, n: int) -> tuple[Tensor, Tensor, int]:
    """Where n rows go when each group is filled up with zeros: place of each row, end of each group, rows in all.

    The number of rows depends on shapes only; the last group takes what is left, so that every row is in a group.
    """
    experts = len(counts)
    rows = n + ALIGN * experts
    rows += -rows % ALIGN
    room = (counts.clamp(min=1) + ALIGN - 1) // ALIGN * ALIGN
    ends = room.cumsum(0)
    shift = (ends - room) - (counts.cumsum(0) - counts)
    places = torch.arange(n, device=counts.device) + shift.repeat_interleave(counts, output_size=n)
    ends = ends.to(torch.int32)
    ends[-1] = rows
    return places, ends, rows
