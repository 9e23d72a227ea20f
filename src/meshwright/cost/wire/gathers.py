"""Gathers: how often FSDP2 gathers a unit in one step.

Outside of pipelines: stages 1 and 2 once; stage 3 every micro-batch, blocks and experts in forward and in backward.
In a pipeline PyTorch keeps what a backward gathered, and stage 3 gives it back after each forward, so the number
depends on the order of forwards and backwards: they are walked through, as are the gathers that PyTorch's schedules
of several stages a rank add (torch.distributed.pipelining, `_add_unshard_reshard`, three stages at a time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from meshwright.cost.schedules import Action, parts, table
from meshwright.cost.schedules.action import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from meshwright.cost.wire.place import Place
from meshwright.spec.layout import MULTI_STAGE_SCHEDULES

Gathers = Callable[[int, str], int]
"""(stage, unit: block, expert or root) → all-gathers a step."""
_ACTIVE = 3
"""Stages that PyTorch's runtime keeps gathered."""
_GATHER, _GIVE_BACK = "gather", "give back"


def gathers(place: Place, micro_batches: int) -> Gathers:
    """The gathers of this rank's units."""
    layout = place.layout
    if layout.stages == 1:
        if layout.zero_stage < 3:
            return lambda stage, unit: 1
        again = 2 if layout.recompute != "full" else 3
        often = {"root": 1, "block": 2, "expert": again}
        return lambda stage, unit: micro_batches * often[unit]
    found = {stage: _walk(stage, place, micro_batches) for stage in place.stages}
    return lambda stage, unit: found[stage][unit]


def _walk(stage: int, place: Place, micro_batches: int) -> dict[str, int]:
    """Gathers of the units of one stage in a step of a pipeline."""
    layout = place.layout
    held = dict.fromkeys(("root", "block", "expert"), False)
    count = dict.fromkeys(held, 0)
    for kind in _actions(stage, place, micro_batches):
        if kind == _GIVE_BACK:
            held = dict.fromkeys(held, False)
            continue
        for unit, there in held.items():
            count[unit] += not there
            held[unit] = True
        if kind == FORWARD and layout.zero_stage == 3:
            held["block"] = held["expert"] = False
    return count


def _actions(stage: int, place: Place, micro_batches: int) -> Iterator[str]:
    """What happens to the parameters of one stage of this rank, in order."""
    layout = place.layout
    row = table(layout.schedule, layout.pipeline, micro_batches, layout.virtual_stages)[place.pipeline]
    several = layout.schedule in MULTI_STAGE_SCHEDULES
    active: set[int] = set()
    for at, cell in enumerate(row):
        if several:
            coming = list(dict.fromkeys(a.stage for a in chain.from_iterable(parts(c) for c in row[at:])))[:_ACTIVE]
            if stage in active and stage not in coming:
                yield _GIVE_BACK
            if stage not in active and stage in coming:
                yield _GATHER
            active = set(coming)
        for action in parts(cell):
            if action.stage == stage and _needs(action):
                yield action.kind


def _needs(action: Action) -> bool:
    """Whether a pass needs the parameters: the weights' gradients need none, but stage 0 has its backward there."""
    if action.stage == 0:
        return action.kind != INPUT_GRADIENT
    return action.kind in (FORWARD, BACKWARD, INPUT_GRADIENT) and action.kind != WEIGHT_GRADIENT
