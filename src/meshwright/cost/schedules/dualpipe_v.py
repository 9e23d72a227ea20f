"""DualPipeV: ZB-V's layout, with a forward and a backward run together in the steady phase (arXiv:2412.19437).

The pair lets one pass's all-to-alls run under the other's compute.
"""

from __future__ import annotations

from collections import deque

from meshwright.cost.schedules.action import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Action, Cell
from meshwright.cost.schedules.row import Row


def rank_row(rank: int, pipeline: int, micro_batches: int, virtual_stages: int) -> list[Cell]:
    """What rank `rank` computes, in the order of PyTorch's ScheduleDualPipeV."""
    row = Row()
    down, up = rank, 2 * pipeline - 1 - rank
    below = pipeline - 1 - rank
    due: deque[Action] = deque()
    _warm_up(row, due, down, up, below)
    for i in range(micro_batches - 2 * pipeline + rank + 1):
        if i == 0 and below == 0:
            # The last rank runs its first pair apart, which sends the gradient on sooner.
            row.add(down, FORWARD)
            row.add(up, BACKWARD)
        else:
            row.add_pair(down, up)
        row.add_pair(up, down)
    for _ in range(below):
        row.add(up, BACKWARD)
        row.add_pair(up, down)
    _cool_down(row, due, down, up, below)
    return row.cells


def _warm_up(row: Row, due: deque[Action], down: int, up: int, below: int) -> None:
    for _ in range(2 * below):
        row.add(down, FORWARD)
    for _ in range(down + 1):
        row.add(down, FORWARD)
        row.add(up, FORWARD)
    for _ in range(below):
        _backward(row, due, up, split=True)
        _weight(row, due)
        row.add(up, FORWARD)


def _cool_down(row: Row, due: deque[Action], down: int, up: int, below: int) -> None:
    """Backwards alone; the second half of them is split, and its weight gradients wait for the end."""
    for i in range(2 * (down + 1)):
        _backward(row, due, down if i % 2 else up, split=i > down)
    for _ in range(below):
        _weight(row, due)
        _backward(row, due, down, split=True)
    while due:
        _weight(row, due)


def _backward(row: Row, due: deque[Action], stage: int, split: bool) -> None:
    row.add(stage, INPUT_GRADIENT if split else BACKWARD)
    if split:
        done = row.cells[-1]
        assert isinstance(done, Action)
        due.append(Action(stage, WEIGHT_GRADIENT, done.micro_batch))


def _weight(row: Row, due: deque[Action]) -> None:
    if due:
        row.cells.append(due.popleft())
