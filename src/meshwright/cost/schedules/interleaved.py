"""Interleaved 1F1B: v stages a rank, depth first (arXiv:2104.04473 section 2.2).

The bubble shrinks v times; activations and messages grow. PyTorch's variant also takes micro-batch counts that p does
not divide, as long as the number of rounds, max(1, m // p), divides them.
"""

from __future__ import annotations

from meshwright.cost.schedules.action import BACKWARD, Cell
from meshwright.cost.schedules.order import depth_first, one_forward_one_backward, rounds


def rank_row(rank: int, pipeline: int, micro_batches: int, virtual_stages: int) -> list[Cell]:
    """What rank `rank` computes, in the order of PyTorch's ScheduleInterleaved1F1B."""
    forwards, backwards = depth_first(rank, pipeline, micro_batches, virtual_stages, BACKWARD)
    per_round = micro_batches // rounds(pipeline, micro_batches)
    warmup = (virtual_stages - 1) * per_round + 2 * (pipeline - 1 - rank)
    return one_forward_one_backward(forwards, backwards, warmup)
