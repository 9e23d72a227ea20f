"""Looped breadth-first: every local stage takes all micro-batches before the next one does (arXiv:2211.05953).

With fully sharded parameters each stage is gathered once a pass and not once a round; all m micro-batches are in
flight.
"""

from __future__ import annotations

from meshwright.cost.schedules.action import BACKWARD, FORWARD, Action, Cell


def rank_row(rank: int, pipeline: int, micro_batches: int, virtual_stages: int) -> list[Cell]:
    """What rank `rank` computes, in the order of PyTorch's ScheduleLoopedBFS (backwards: latest micro-batch first)."""
    stages = range(rank, pipeline * virtual_stages, pipeline)
    row: list[Cell] = [Action(s, FORWARD, i) for s in stages for i in range(micro_batches)]
    row += [Action(s, BACKWARD, i) for s in reversed(stages) for i in reversed(range(micro_batches))]
    return row
