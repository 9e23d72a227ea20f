"""What every schedule's table must satisfy, whoever wrote it."""

from __future__ import annotations

from collections import Counter

from meshwright.cost.schedules.action import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Action,
    Table,
    parts,
)
from meshwright.spec.errors import LayoutError


def stage_ranks(table: Table) -> list[int]:
    """The rank of each stage, read off the table.

    Raises LayoutError if a rank has nothing to do, a stage lies on two ranks, or stages are missing between others.
    """
    ranks: dict[int, int] = {}
    for rank, row in enumerate(table):
        if not row:
            raise LayoutError(f"schedule table: rank {rank} computes nothing")
        for stage in {action.stage for cell in row for action in parts(cell)}:
            if stage in ranks:
                raise LayoutError(f"schedule table: stage {stage} is on rank {ranks[stage]} and on rank {rank}")
            ranks[stage] = rank
    if not ranks:
        raise LayoutError("schedule table: no ranks")
    for expected, stage in enumerate(sorted(ranks)):
        if stage != expected:
            raise LayoutError(f"schedule table: no rank computes stage {expected}")
    return [ranks[stage] for stage in range(len(ranks))]


def check_table(table: Table) -> None:
    """Raise LayoutError, naming rank and action, unless the table is one step of a pipeline.

    Every stage lies on one rank and takes the same micro-batches once: forward, then a full backward, or an input
    gradient and later a weight gradient. Whether ranks wait for each other for ever is found by `simulate`.
    """
    stages = len(stage_ranks(table))
    passed: list[set[Action]] = [set() for _ in range(stages)]
    for rank, row in enumerate(table):
        for cell in row:
            for action in parts(cell):
                _check_order(rank, action, passed[action.stage])
                passed[action.stage].add(action)
    micro_batches = {action.micro_batch for action in passed[0] if action.kind == FORWARD}
    if micro_batches != set(range(len(micro_batches))):
        raise LayoutError(f"schedule table: micro-batches {sorted(micro_batches)} are not 0, 1, 2, …")
    for stage, actions in enumerate(passed):
        done = Counter(action.kind for action in actions)
        complete = done[BACKWARD] + done[WEIGHT_GRADIENT]
        if not done[FORWARD] == complete == len(micro_batches):
            raise LayoutError(
                f"schedule table: stage {stage} has {done[FORWARD]} forwards and {complete} complete backwards "
                f"of {len(micro_batches)} micro-batches"
            )


def _check_order(rank: int, action: Action, passed: set[Action]) -> None:
    """The action is new, and what must come before it on its own stage has come."""
    if action in passed:
        raise LayoutError(f"schedule table: rank {rank} computes {action} twice")
    stage, kind, i = action
    before = {FORWARD: (), BACKWARD: (FORWARD,), INPUT_GRADIENT: (FORWARD,), WEIGHT_GRADIENT: (INPUT_GRADIENT,)}[kind]
    for needed in before:
        if Action(stage, needed, i) not in passed:
            raise LayoutError(f"schedule table: rank {rank} computes {action} before {Action(stage, needed, i)}")
    other = {BACKWARD: INPUT_GRADIENT, INPUT_GRADIENT: BACKWARD}.get(kind)
    if other and Action(stage, other, i) in passed:
        raise LayoutError(f"schedule table: rank {rank} computes both {Action(stage, other, i)} and {action}")
