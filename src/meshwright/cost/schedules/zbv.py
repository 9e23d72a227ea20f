"""ZB-V: two stages a rank, laid out as a V (arXiv:2401.10241 section 6).

No bubble but the first fill where F, I and W take the same time.
"""

from __future__ import annotations

from meshwright.cost.schedules.action import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Cell, parts
from meshwright.cost.schedules.row import Row


def rank_row(rank: int, pipeline: int, micro_batches: int, virtual_stages: int) -> list[Cell]:
    """What rank `rank` computes, in the order of PyTorch's ScheduleZBVZeroBubble.

    The order is made for at least 2p - 1 micro-batches; with fewer, those that do not exist are left out.
    """
    row = Row()
    planned = max(2 * pipeline - 1, micro_batches)
    down, up = rank, 2 * pipeline - 1 - rank
    backward = (INPUT_GRADIENT, WEIGHT_GRADIENT)
    for _ in range(2 * (pipeline - rank) - 1):
        row.add(down, FORWARD)
    for _ in range(rank):
        row.add(up, FORWARD)
        row.add(down, FORWARD)
    for _ in range(pipeline - rank):
        row.add(up, FORWARD, *backward)
    while row.count(up, FORWARD) < planned:
        if row.count(down, FORWARD) < planned:
            row.add(down, FORWARD)
        row.add(down, *backward)
        row.add(up, FORWARD, *backward)
    for _ in range(rank):
        row.add(down, INPUT_GRADIENT)
        row.add(up, INPUT_GRADIENT)
    for _ in range(pipeline - rank):
        row.add(down, *backward)
    for stage in (up, down):
        while row.count(stage, WEIGHT_GRADIENT) < row.count(stage, INPUT_GRADIENT):
            row.add(stage, WEIGHT_GRADIENT)
    if planned == micro_batches:
        return row.cells
    return [cell for cell in row.cells if all(a.micro_batch < micro_batches for a in parts(cell))]
