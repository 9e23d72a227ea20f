"""One cell of a schedule's table, in the notation of torch.distributed.pipelining: `3F0`, `(0F4;7B1)OVERLAP_F_B`."""

from __future__ import annotations

import re
from typing import NamedTuple

from meshwright.spec.errors import LayoutError

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "F", "B", "I", "W"
KINDS = (FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
"""Forward; the whole backward; the gradient of the stage's input alone; the gradients of its weights."""

_OVERLAP = "OVERLAP_F_B"
_CELL = re.compile(r"([0-9]{1,9})([FBIW])([0-9]{1,9})")
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)" + _OVERLAP)


class Action(NamedTuple):
    """One pass of one micro-batch through one stage."""

    stage: int
    kind: str
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


class Pair(NamedTuple):
    """A forward and a backward of two stages of a rank, run together (DualPipe)."""

    forward: Action
    backward: Action

    def __str__(self) -> str:
        return f"({self.forward};{self.backward}){_OVERLAP}"


Cell = Action | Pair
Table = list[list[Cell]]
"""For each pipeline rank, what it computes, in order."""


def parts(cell: Cell) -> tuple[Action, ...]:
    """The actions of a cell: one, or a pair's two, forward first."""
    return (cell,) if isinstance(cell, Action) else (cell.forward, cell.backward)


def parse_cell(text: str) -> Cell:
    """Read what `str` of a cell prints.

    Raises LayoutError if the text is anything else, the sends and receives of a lowered table included.
    """
    stripped = text.strip()
    if pair := _PAIR.fullmatch(stripped):
        forward, backward = (parse_cell(part) for part in pair.groups())
        if (
            isinstance(forward, Action)
            and isinstance(backward, Action)
            and (forward.kind, backward.kind) == (FORWARD, BACKWARD)
        ):
            return Pair(forward, backward)
        raise LayoutError(
            f"overlapped pair {stripped[:40]!r}: a forward and a full backward, in this order, belong in it"
        )
    if not (match := _CELL.fullmatch(stripped)):
        raise LayoutError(
            f"{stripped[:40]!r} is no compute action; one is stage, kind, micro-batch.",
            legal=("3F0", "3B0", "3I0", "3W0", f"(0F4;7B1){_OVERLAP}"),
        )
    stage, kind, micro_batch = match.groups()
    return Action(int(stage), kind, int(micro_batch))
