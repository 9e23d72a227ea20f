"""A rank's row under construction: each kind of pass of each stage takes its micro-batches in order."""

from __future__ import annotations

from collections import defaultdict

from meshwright.cost.schedules.action import BACKWARD, FORWARD, INPUT_GRADIENT, Action, Cell, Pair


class Row:
    """The cells so far, and per stage and kind the next micro-batch.

    Full backwards and input gradients of a stage share one count.
    """

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self._next: defaultdict[tuple[int, str], int] = defaultdict(int)

    def count(self, stage: int, kind: str) -> int:
        """Micro-batches that have had this pass."""
        return self._next[stage, kind]

    def add(self, stage: int, *kinds: str) -> None:
        """The next micro-batch of each kind, in this order."""
        self.cells += [self._take(stage, kind) for kind in kinds]

    def add_pair(self, forward_stage: int, backward_stage: int) -> None:
        """The next forward of one stage together with the next full backward of another."""
        self.cells.append(Pair(self._take(forward_stage, FORWARD), self._take(backward_stage, BACKWARD)))

    def _take(self, stage: int, kind: str) -> Action:
        key = stage, INPUT_GRADIENT if kind == BACKWARD else kind
        micro_batch = self._next[key]
        self._next[key] = micro_batch + 1
        return Action(stage, kind, micro_batch)
