"""Interleaved zero bubble: the backward split in two, weight gradients fill the gaps (ZB1P of arXiv:2401.10241)."""

from __future__ import annotations

from meshwright.cost.schedules.action import INPUT_GRADIENT, WEIGHT_GRADIENT, Action, Cell
from meshwright.cost.schedules.order import depth_first, one_forward_one_backward, rounds


def rank_row(rank: int, pipeline: int, micro_batches: int, virtual_stages: int) -> list[Cell]:
    """What rank `rank` computes, in the order of PyTorch's ScheduleInterleavedZeroBubble.

    Half of interleaved 1F1B's extra warm-up; from its `rank`-th on, each input gradient is followed by the oldest
    weight gradient that is due.
    """
    forwards, inputs = depth_first(rank, pipeline, micro_batches, virtual_stages, INPUT_GRADIENT)
    per_round = micro_batches // rounds(pipeline, micro_batches)
    warmup = (virtual_stages - 1) * per_round + pipeline - 1 - rank
    weights = iter([Action(a.stage, WEIGHT_GRADIENT, a.micro_batch) for a in inputs])
    row: list[Cell] = []
    delay = rank
    for cell in one_forward_one_backward(forwards, inputs, warmup):
        row.append(cell)
        if isinstance(cell, Action) and cell.kind == INPUT_GRADIENT:
            if delay == 0:
                row.append(next(weights))
            else:
                delay -= 1
    return row + list(weights)
