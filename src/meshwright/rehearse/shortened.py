"""Shortened: some of a step's micro-batches stand for all, where the others do what one of them does.

Outside of a pipeline the first micro-batch gathers what stays, the last one sums gradients, and those between are
alike: three are run. In a pipeline the most activations are there once all ranks are at work, and each further
micro-batch does what one in the middle does; what a step holds of it from the start, `room` makes. Schedules that run
all forwards first keep all their activations: nothing is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.cost.schedules import takes
from meshwright.spec.layout import Layout

if TYPE_CHECKING:
    from meshwright.rehearse.places import Phase

ALL_FORWARDS_FIRST = ("gpipe", "loopedbfs")
PASSES = ("forward", "backward", "input", "weight")
OUTSIDE = 3


def run_of(layout: Layout, micro_batches: int) -> int:
    """How many of a step's micro-batches are run."""
    if layout.stages == 1:
        return min(micro_batches, OUTSIDE)
    if layout.schedule in ALL_FORWARDS_FIRST:
        return micro_batches
    # 1F1B keeps one micro-batch for each stage that follows; the next two turn where all of these are kept.
    least = layout.pipeline + 2 if layout.schedule == "1f1b" else 2 * layout.pipeline + 1
    legal = (n for n in range(least, micro_batches) if takes(layout.schedule, layout.pipeline, n))
    return next(legal, micro_batches)


def repeats(phase: Phase, run: int, micro_batches: int) -> int:
    """How often what happened in a phase happens in the whole step: once, or also in all that was left out."""
    return 1 + micro_batches - run if phase.name in PASSES and phase.micro_batch == run // 2 else 1
