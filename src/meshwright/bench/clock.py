"""Clock: seconds of each of many runs, one after the other, as a training step would see them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import torch


def durations(run: Callable[[], None], iterations: int, device: torch.device) -> torch.Tensor:
    """Seconds of each run [iterations], float64 on the CPU.

    Runs follow each other without a pause, so that the mean is the time of the whole loop over its iterations, as in
    nccl-tests. On a GPU events between the runs are read at the end.
    """
    if device.type == "cuda":
        events = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]  # type: ignore[no-untyped-call]
        events[0].record()
        for event in events[1:]:
            run()
            event.record()
        torch.cuda.synchronize(device)
        pairs = itertools.pairwise(events)
        return torch.tensor([before.elapsed_time(after) / 1e3 for before, after in pairs], dtype=torch.float64)
    marks = [time.perf_counter()]
    for _ in range(iterations):
        run()
        marks.append(time.perf_counter())
    return torch.tensor(marks, dtype=torch.float64).diff()
