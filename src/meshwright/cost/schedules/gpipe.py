"""GPipe: all forwards, then all backwards (arXiv:1811.06965). One stage a rank; m micro-batches in flight."""

from __future__ import annotations

from meshwright.cost.schedules.action import BACKWARD, FORWARD, Action, Cell


def rank_row(rank: int, pipeline: int, micro_batches: int, virtual_stages: int) -> list[Cell]:
    """What rank `rank` computes, in the order of PyTorch's ScheduleGPipe."""
    return [Action(rank, kind, i) for kind in (FORWARD, BACKWARD) for i in range(micro_batches)]
