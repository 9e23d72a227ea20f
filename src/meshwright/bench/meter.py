"""Peak memory of a rank from its allocator: bytes of tensors, not of the process.

On a GPU PyTorch's caching allocator counts by itself. On a CPU the profiler notes every allocation from the first
parameter on; the peak is the highest sum of those not yet freed. That slows the first steps, which are not timed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch._C._profiler import _EventType
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
        self.peak_bytes = peak(allocations(self._profile.profiler.kineto_results.experimental_event_tree()))
        self._profile = None


def peak(allocations: Iterable[tuple[int, int, int]]) -> float:
    """The highest sum of what lives, from (moment, address, bytes), bytes negative where memory is freed.

    An address that is given out again has been freed where the profiler does not look: on a collective's thread.
    """
    lives: dict[int, int] = {}
    total = highest = 0
    for _, address, size in sorted(allocations):
        total -= lives.pop(address, 0)
        if size > 0:
            lives[address] = size
            total += size
            highest = max(highest, total)
    return float(highest)


def allocations(events: Iterable[Any], without: tuple[str, ...] = ()) -> Iterator[tuple[int, int, int]]:
    """(moment, address, bytes) of what the profiler noted, in any order; not what is taken inside of an operation
    whose name begins like one of `without`."""
    waiting = [(event, False) for event in events]
    while waiting:
        event, inside = waiting.pop()
        if event.tag == _EventType.Allocation and not (inside and event.extra_fields.alloc_size > 0):
            yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size
        inside = inside or event.name.startswith(without)
        waiting += [(child, inside) for child in event.children]
