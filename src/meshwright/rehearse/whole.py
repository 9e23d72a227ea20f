"""Whole: the collectives of a step, from those of the micro-batches that were run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from meshwright.cost.wire_row import WireRow
from meshwright.modes.record import Entry, summarize
from meshwright.rehearse.places import Phase
from meshwright.rehearse.shortened import repeats


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
