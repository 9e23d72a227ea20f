"""Meeting: what a collective costs behind work, beyond both by themselves.

Ranks with equal work are never done at the same moment, and least of all where they share cores: each collective waits
for the last one. A loop of collectives alone does not see it, a training step pays it every time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist

from meshwright.bench.compute.clock import meet

ROUNDS = 5
STEPS = 12
"""Of each kind in a round."""


def meeting_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds a collective, at least 0: the median of rounds that take turns. Collective over all ranks.

    Of `work` (the same on every rank) with an 8-byte all-reduce behind it, less `work` alone, less the all-reduce
    alone.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return 0.0
    number = torch.zeros(2, device=device)

    def talk() -> None:
        dist.all_reduce(number)

    def both() -> None:
        work()
        dist.all_reduce(number)

    for run in (work, talk, both):
        run()
    found = []
    for _ in range(ROUNDS):
        together, alone, talked = (_seconds(run, device) for run in (both, work, talk))
        found.append(together - alone - talked)
    return max(median(found), 0.0)


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    """Mean seconds of a run, until the last rank is done."""
    meet(device)
    begin = time.perf_counter()
    for _ in range(STEPS):
        run()
    meet(device)
    return (time.perf_counter() - begin) / STEPS
