"""Peak memory of a rank from its allocator: bytes of tensors, not of the process.

On a GPU PyTorch's caching allocator counts by itself. On a CPU the profiler notes every allocation from the first
parameter on; the peak is the highest sum of those not yet freed. That slows the first steps, which are not timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from types import TracebackType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

CPU = "peak of PyTorch's CPU allocations, by its profiler"
CUDA = "peak of PyTorch's CUDA allocator"


class Meter:
    """Measures while entered: enter before the model is built, leave after the second step."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peak_bytes = 0.0
        self.kind = CUDA if device.type == "cuda" else CPU
        self._profile: Any = None

    def __enter__(self) -> Meter:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
            self._profile.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._profile is None:
            self.peak_bytes = float(torch.cuda.max_memory_allocated(self.device))
            return
        self._profile.__exit__(kind, error, trace)
        events = self._profile.profiler.kineto_results.events()
        self.peak_bytes = peak((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
        self._profile = None


def peak(allocations: Iterable[tuple[int, int]]) -> float:
    """The highest running sum of (moment, bytes), bytes negative where memory is freed."""
    in_order = sorted(allocations, key=lambda event: event[0])
    return float(max(accumulate(size for _, size in in_order), default=0))
