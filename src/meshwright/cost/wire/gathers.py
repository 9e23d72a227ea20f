"""Gathers: how often FSDP2 gathers a unit in one step.

Outside of pipelines: stages 1 and 2 once; stage 3 every micro-batch, blocks and experts in forward and in backward.
In a pipeline a stage keeps what it gathered until its last pass, but of many stages a rank PyTorch keeps the next three
gathered and gives the others back (torch.distributed.pipelining, `_add_unshard_reshard`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from meshwright.cost.schedules import Cell, parts, table
from meshwright.cost.wire.place import Place
from meshwright.spec.layout import MULTI_STAGE_SCHEDULES

Gathers = Callable[[int, str], int]
"""(stage, unit: block, expert or root) → all-gathers a step. Recomputation finds what backward gathered."""
_ACTIVE = 3
"""Stages that PyTorch's runtime keeps gathered."""


def gathers(place: Place, micro_batches: int) -> Gathers:
    """The gathers of this rank's units."""
    layout = place.layout
    if layout.stages > 1:
        found = _of_stages(place, micro_batches)
        return lambda stage, unit: found[stage]
    if layout.zero_stage < 3:
        return lambda stage, unit: 1
    return lambda stage, unit: micro_batches * (1 if unit == "root" else 2)


def _of_stages(place: Place, micro_batches: int) -> dict[int, int]:
    """How often each stage of this rank is gathered: whenever it is among the next ones and was given back before."""
    layout = place.layout
    if layout.schedule not in MULTI_STAGE_SCHEDULES:
        return dict.fromkeys(place.stages, 1)
    row = table(layout.schedule, layout.pipeline, micro_batches, layout.virtual_stages)[place.pipeline]
    found = dict.fromkeys(place.stages, 0)
    active: set[int] = set()
    for at in range(len(row)):
        coming = _coming(row, at)
        for stage in coming:
            found[stage] += stage not in active
        active = set(coming)
    return found


def _coming(row: Sequence[Cell], at: int) -> list[int]:
    """The next stages that compute."""
    found: list[int] = []
    for cell in islice(row, at, None):
        for action in parts(cell):
            if action.stage not in found:
                found.append(action.stage)
        if len(found) >= _ACTIVE:
            break
    return found
