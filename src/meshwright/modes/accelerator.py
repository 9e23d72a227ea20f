"""Whether tensors are on an accelerator. A rehearsal's are nowhere: they stand for tensors on one, kernels and all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_stands_in = False


def on_accelerator(device: torch.device) -> bool:
    """Whether the program runs as it does on a GPU."""
    return device.type != "cpu" or _stands_in


def stands_in() -> bool:
    """Whether tensors on the CPU stand for such on a GPU, so that kernels must be named that PyTorch would choose."""
    return _stands_in


@contextmanager
def stand_in(wanted: bool = True) -> Iterator[None]:
    """Inside, and if `wanted`, tensors on the CPU stand for tensors on a GPU (fake ones: no kernel ever runs)."""
    global _stands_in
    _stands_in = wanted
    try:
        yield
    finally:
        _stands_in = False
