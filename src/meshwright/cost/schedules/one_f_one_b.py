"""1F1B: p - r forwards, then a backward and a forward in turn, then the other backwards (arXiv:1806.03377).

The same bubble as GPipe, but rank r holds p - r micro-batches and not m.
"""

from __future__ import annotations

from meshwright.cost.schedules.action import BACKWARD, FORWARD, Action, Cell
from meshwright.cost.schedules.order import one_forward_one_backward


def rank_row(rank: int, pipeline: int, micro_batches: int, virtual_stages: int) -> list[Cell]:
    """What rank `rank` computes, in the order in which PyTorch's Schedule1F1B runs it."""
    forwards = [Action(rank, FORWARD, i) for i in range(micro_batches)]
    backwards = [Action(rank, BACKWARD, i) for i in range(micro_batches)]
    return one_forward_one_backward(forwards, backwards, warmup=pipeline - 1 - rank)
