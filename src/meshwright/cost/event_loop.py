"""The loop behind `simulate`. Flat lists and no objects an action, since a table easily has 100,000 of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from meshwright.cost.schedules.action import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Action
from meshwright.spec.errors import LayoutError

Times = list[float | None]
"""By micro-batch: when an input is on the rank that needs it; None: not yet known."""


class _Pass(NamedTuple):
    """One kind of pass of one stage."""

    inputs: Times
    seconds: float
    outputs: Times
    send_seconds: float
    reader: int
    """The rank that reads `outputs`."""


class EventLoop:
    """How far each rank is, and when each input is there."""

    def __init__(
        self,
        rows: Sequence[Sequence[Action]],
        held_back: Sequence[Collection[int]],
        ranks: Sequence[int],
        forward: Sequence[float],
        input_gradient: Sequence[float],
        weight_gradient: Sequence[float],
        send_seconds: float,
    ) -> None:
        """`ranks` is the rank of each stage; the seconds are each stage's.

        `held_back` are each rank's positions in its row whose result leaves only with the next one's.
        """
        self.starts: list[list[float]] = [[] for _ in rows]
        self.ends: list[list[float]] = [[] for _ in rows]
        self._rows, self._held_back, self._ranks = rows, held_back, ranks
        self._unsent: list[list[tuple[_Pass, int]]] = [[] for _ in rows]
        self._waits_for: list[Times | None] = [None] * len(rows)
        self._waits_at = [0] * len(rows)
        self._inputs_done, self._passes = self._connect(forward, input_gradient, weight_gradient, send_seconds)

    def run(self) -> None:
        """Advance all ranks to the end of their rows; LayoutError if they wait for each other for ever."""
        awake = list(range(len(self._rows)))
        while awake:
            self._advance(awake.pop(), awake)
        for rank, stuck in enumerate(self._waits_for):
            if stuck is not None:
                self._raise_deadlock(rank)

    def _connect(
        self,
        forward: Sequence[float],
        input_gradient: Sequence[float],
        weight_gradient: Sequence[float],
        send_seconds: float,
    ) -> tuple[list[Times], dict[str, list[_Pass]]]:
        """Where each pass of each stage finds its input and leaves its result."""
        ranks, last = self._ranks, len(self._ranks) - 1
        count = 1 + max(action.micro_batch for row in self._rows for action in row)

        def blank() -> list[Times]:
            return [[None] * count for _ in ranks]

        activations, gradients, inputs_done, unread = blank(), blank(), blank(), blank()
        activations[0] = [0.0] * count
        passes: dict[str, list[_Pass]] = {kind: [] for kind in (FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)}

        def hop(here: int, there: int) -> tuple[float, int]:
            return (0.0 if ranks[here] == ranks[there] else send_seconds), ranks[there]

        for s, (f, i, w) in enumerate(zip(forward, input_gradient, weight_gradient, strict=True)):
            # The last stage's gradient starts from its own forward.
            result = (activations[s + 1], *hop(s, s + 1)) if s < last else (gradients[s], 0.0, ranks[s])
            gradient = (gradients[s - 1], *hop(s, s - 1)) if s else (unread[s], 0.0, ranks[s])
            passes[FORWARD].append(_Pass(activations[s], f, *result))
            passes[BACKWARD].append(_Pass(gradients[s], i + w, *gradient))
            passes[INPUT_GRADIENT].append(_Pass(gradients[s], i, *gradient))
            passes[WEIGHT_GRADIENT].append(_Pass(inputs_done[s], w, unread[s], 0.0, ranks[s]))
        return inputs_done, passes

    def _advance(self, rank: int, awake: list[int]) -> None:
        """Run the rank's row until an input is missing; append the ranks whose missing input came to be."""
        row, starts, ends, passes = self._rows[rank], self.starts[rank], self.ends[rank], self._passes
        unsent, held_back = self._unsent[rank], self._held_back[rank]
        clock = ends[-1] if ends else 0.0
        for position in range(len(ends), len(row)):
            stage, kind, i = row[position]
            now = passes[kind][stage]
            arrival = now.inputs[i]
            if arrival is None:
                self._waits_for[rank], self._waits_at[rank] = now.inputs, i
                return
            if arrival > clock:
                clock = arrival
            starts.append(clock)
            clock += now.seconds
            ends.append(clock)
            if kind == INPUT_GRADIENT:
                self._inputs_done[stage][i] = clock
            unsent.append((now, i))
            if position not in held_back:
                self._send(unsent, clock, awake)

    def _send(self, unsent: list[tuple[_Pass, int]], clock: float, awake: list[int]) -> None:
        """Let the results go to the ranks that read them, and wake those that wait for them."""
        for done, i in unsent:
            reader = done.reader
            done.outputs[i] = clock + done.send_seconds
            if self._waits_for[reader] is done.outputs and self._waits_at[reader] == i:
                self._waits_for[reader] = None
                awake.append(reader)
        unsent.clear()

    def _raise_deadlock(self, rank: int) -> None:
        """Follow who waits for whom, from `rank` on, until a rank comes up again or has nothing left to do."""
        waits: list[str] = []
        seen: set[int] = set()
        while rank not in seen and len(self.ends[rank]) < len(self._rows[rank]):
            seen.add(rank)
            position = len(self.ends[rank])
            stuck = self._rows[rank][position]
            needed = self._input_of(stuck)
            waits.append(f"rank {rank} waits at action {position + 1} of its row, {stuck}, for {needed}")
            rank = self._ranks[needed.stage]
        raise LayoutError(f"the schedule deadlocks: {'; '.join(waits)}; rank {rank} never computes that")

    def _input_of(self, action: Action) -> Action:
        """What the action reads; every backward counts as one of the action's own kind."""
        stage, kind, i = action
        if kind == FORWARD:
            return Action(stage - 1, FORWARD, i)
        if kind == WEIGHT_GRADIENT:
            return Action(stage, INPUT_GRADIENT, i)
        return Action(stage + 1, kind, i) if stage + 1 < len(self._ranks) else Action(stage, FORWARD, i)
