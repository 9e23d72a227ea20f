"""Event simulation of a schedule's table: when each action of each rank starts and ends.

A rank computes one thing at a time, in its row's order. A forward waits for the stage before, a backward for the
stage behind; a result reaches another rank `send_seconds` after it is there, whatever that rank does meanwhile.
A pair's forward and backward run one after the other and their results leave together, as in PyTorch, which posts
the sends behind the pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.cost.event_loop import EventLoop
from meshwright.cost.schedules.action import Action, Cell, Pair, Table
from meshwright.cost.schedules.activations import peak_held
from meshwright.cost.schedules.consistency import stage_ranks
from meshwright.spec.errors import LayoutError


@dataclass(frozen=True, slots=True)
class Simulation:
    """One simulated step; `starts[r][k]` and `ends[r][k]` are the seconds of `actions[r][k]`."""

    table: Table
    actions: list[list[Action]]
    """The table's rows with pairs taken apart."""
    stage_ranks: list[int]
    """The rank of each stage."""
    starts: list[list[float]]
    ends: list[list[float]]

    @property
    def makespan_seconds(self) -> float:
        """From the first action's start to the last one's end."""
        return max(row[-1] for row in self.ends)

    @property
    def busy_seconds(self) -> list[float]:
        """Seconds that each rank computes."""
        return [sum(ends) - sum(starts) for starts, ends in zip(self.starts, self.ends, strict=True)]

    @property
    def idle_seconds(self) -> list[float]:
        """Seconds that each rank waits until the last rank is done."""
        return [self.makespan_seconds - busy for busy in self.busy_seconds]

    @property
    def bubble(self) -> float:
        """Idle share of all ranks' seconds."""
        return sum(self.idle_seconds) / (len(self.table) * self.makespan_seconds)

    @property
    def in_flight(self) -> list[int]:
        """Of each rank: peak number of stage activations, each until its backward is complete."""
        return self._peaks(awaiting_weight=1.0)

    @property
    def in_flight_until_input_gradient(self) -> list[int]:
        """As `in_flight`, without those that only wait for their weight gradient."""
        return self._peaks(awaiting_weight=0.0)

    @property
    def in_flight_by_stage(self) -> list[int]:
        """Of each stage: peak number of activations, each until its backward is complete."""
        stages = range(len(self.stage_ranks))
        alone = [[float(s == stage) for s in stages] for stage in stages]
        return [round(peak_held(self.table[rank], one, one)) for rank, one in zip(self.stage_ranks, alone, strict=True)]

    def _peaks(self, awaiting_weight: float) -> list[int]:
        n = len(self.stage_ranks)
        return [round(peak_held(row, [1.0] * n, [awaiting_weight] * n)) for row in self.table]


def simulate(
    table: Table,
    forward: Sequence[float],
    input_gradient: Sequence[float],
    weight_gradient: Sequence[float],
    send_seconds: float = 0.0,
) -> Simulation:
    """Run the table with each stage's seconds for one micro-batch; a full backward takes both gradients' seconds.

    Recomputation is part of `input_gradient`. Sends between stages of one rank are free. Raises LayoutError if the
    ranks wait for each other for ever, naming a rank, its action and what it needs, or if a sequence does not have
    one entry a stage.
    """
    ranks = stage_ranks(table)
    given = {"forward": forward, "input_gradient": input_gradient, "weight_gradient": weight_gradient}
    for name, seconds in given.items():
        if len(seconds) != len(ranks):
            raise LayoutError(f"the schedule has {len(ranks)} stages, but {name} has seconds for {len(seconds)}")
    apart = [_take_apart(row) for row in table]
    actions = [row for row, _ in apart]
    held_back = [firsts for _, firsts in apart]
    loop = EventLoop(actions, held_back, ranks, forward, input_gradient, weight_gradient, send_seconds)
    loop.run()
    return Simulation(table, actions, ranks, loop.starts, loop.ends)


def _take_apart(row: Sequence[Cell]) -> tuple[list[Action], set[int]]:
    """The row's actions one by one, and where among them the pairs' forwards are."""
    actions: list[Action] = []
    firsts = set()
    for cell in row:
        if isinstance(cell, Pair):
            firsts.add(len(actions))
            actions += cell
        else:
            actions.append(cell)
    return actions, firsts
