"""Ranks that take turns in being late: each by itself is on time on average, together they always wait."""

from __future__ import annotations

import time

import torch

from meshwright.bench.compute.meeting import meeting_seconds
from meshwright.train.launch.pool import RankPool

LATE = 0.02


def _late_in_turns() -> float:
    rank, calls = torch.distributed.get_rank(), iter(range(10**6))
    return meeting_seconds(lambda: time.sleep(LATE if next(calls) % 2 == rank else 0.0), torch.device("cpu"))


def _alone() -> float:
    return meeting_seconds(lambda: None, torch.device("cpu"))


def test_ranks_that_are_late_in_turns_wait_for_each_other_at_every_collective(ranks: RankPool) -> None:
    # Alone each sleeps 10 ms a step on average; with a collective behind every step all take the late one's 20 ms.
    for seconds in ranks.run(_late_in_turns, world=2):
        assert 0.4 * LATE < seconds < LATE


def test_a_single_rank_meets_nobody(ranks: RankPool) -> None:
    assert ranks.run(_alone, world=1) == [0.0]
