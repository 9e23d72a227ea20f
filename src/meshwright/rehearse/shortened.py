"""Shortened: some of a step's micro-batches stand for all, where the others do what one of them does.

Outside of a pipeline the first micro-batch gathers what stays, the last one sums gradients, and those between are
alike: three are run. In a pipeline the most activations are there once all ranks are at work, and each further
micro-batch does what one in the middle does; what a step holds of it from the start, `room` makes. Schedules that run
all forwards first keep all their activations: nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from meshwright.cost.schedules import takes
from meshwright.cost.wire_row import WireRow
from meshwright.modes.record import Entry, summarize
from meshwright.rehearse.places import Phase
from meshwright.spec.layout import Layout

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


def whole_traffic(
    entries: Sequence[Entry], phases: Sequence[Phase], run: int, micro_batches: int
) -> tuple[WireRow, ...]:
    """Rows of the whole step. What goes to the next stage is sent between phases, once a micro-batch."""
    by_often: dict[tuple[int, int], list[Entry]] = {}
    for entry, phase in zip(entries, phases, strict=True):
        message = entry.axis == "pipeline" and entry.collective in ("send", "recv")
        often = (micro_batches, run) if message else (repeats(phase, run, micro_batches), 1)
        by_often.setdefault(often, []).append(entry)
    return _merged(
        replace(row, count=row.count * times // over, bytes=row.bytes * times / over)
        for (times, over), some in by_often.items()
        for row in summarize(some)
    )


def _merged(rows: Iterable[WireRow]) -> tuple[WireRow, ...]:
    found: dict[tuple[str, str, bool], WireRow] = {}
    for row in rows:
        key = row.axis, row.collective, row.small
        if key in found:
            row = replace(row, count=row.count + found[key].count, bytes=row.bytes + found[key].bytes)
        found[key] = row
    return tuple(found.values())
