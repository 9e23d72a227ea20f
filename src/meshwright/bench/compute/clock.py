"""Clock: how long work takes while every rank of the machine does it."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

WARM_UP = 2
MOST = 2000


def seconds_of(run: Callable[[], object], budget: float, device: torch.device) -> float:
    """Mean seconds of a run, over a window of `budget` seconds in which all ranks run it.

    The mean and not the median: where ranks share cores, work shorter than a slice of time mostly sees a whole core,
    and now and then waits for long.
    """
    for _ in range(WARM_UP):
        run()
    meet(device)
    if device.type == "cuda":
        return _on_gpu(run, budget, device)
    begin = now = time.perf_counter()
    done = 0
    while (now - begin < budget and done < MOST) or not done:
        run()
        done += 1
        now = time.perf_counter()
    return (now - begin) / done


def _on_gpu(run: Callable[[], object], budget: float, device: torch.device) -> float:
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize(device)
    count = int(min(max(budget / max(time.perf_counter() - begin, 1e-6), 3), MOST))
    begin = time.perf_counter()
    for _ in range(count):
        run()
    torch.cuda.synchronize(device)
    return (time.perf_counter() - begin) / count


def meet(device: torch.device) -> None:
    """All ranks go on at the same time, with nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier()
