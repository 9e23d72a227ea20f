"""The data of the charts, each table once: lists of records in the units that the axes show.

Names of tables: rows, phases, memory, activity, traffic, stages, gantt, curves, front. A number that is not finite is
None, since JSON has no such numbers and no chart can draw it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from meshwright.report.study import LARGEST, Entry, Study, loss_reference, printable
from meshwright.spec.units import GIB, KIB, MIB, TIB

Record = dict[str, Any]
REST = "rest"
PHASES = ("forward", "backward", "optimizer")
"""Order of the parts of a step; others follow in the order in which they are met."""
MEMORY = ("parameters", "gradients", "optimizer")
ACTIVITIES = ("computing", "computing and communicating", "exposed communication", "idle")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit and how many of it one base unit (a second, a byte) is."""

    name: str
    per_base: float


@dataclass(frozen=True, slots=True)
class Tables:
    """Records by table name, and the units that their numbers are in."""

    records: Mapping[str, list[Record]]
    time: Unit
    memory: Unit
    traffic: Unit


def make_tables(study: Study) -> Tables:
    """All tables of a Study; entries that were not measured are in none of them."""
    entries = study.measured
    sent = [sum(t.bytes for t in entry.row.traffic) for entry in entries]
    time = time_unit(entry.step.median for entry in entries)
    memory = size_unit(entry.memory or 0.0 for entry in entries)
    traffic = size_unit(sent)
    front = study.front
    records = {
        "rows": [
            _row(entry, time, memory, entry.name in front) | {"group": entry.run if study.differences else ""}
            for entry in entries
        ],
        "phases": [part for entry in entries for part in _phases(entry, time)],
        "memory": [part for entry in entries for part in _memory(entry, memory)],
        "activity": [part for entry in entries for part in _activity(entry, time)],
        "traffic": [part for entry in entries for part in _traffic(entry, traffic)],
        "stages": [part for entry in entries for part in _stages(entry)],
        "gantt": [bar for entry in entries for bar in _gantt(entry, time)],
        "curves": _curves(study),
    }
    return Tables(records, time, memory, traffic)


def time_unit(seconds: Iterable[float]) -> Unit:
    """Seconds, milliseconds or microseconds, by the longest time."""
    longest = max((value for value in seconds if math.isfinite(value)), default=0.0)
    return Unit("s", 1.0) if longest >= 10 else Unit("ms", 1e3) if longest >= 1e-3 else Unit("µs", 1e6)


def size_unit(sizes: Iterable[float]) -> Unit:
    """The binary unit of which the largest size holds at least two."""
    largest = max((value for value in sizes if math.isfinite(value)), default=0.0)
    for name, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if largest >= 2 * size:
            return Unit(name, 1 / size)
    return Unit("B", 1.0)


def _row(entry: Entry, time: Unit, memory: Unit, on_front: bool) -> Record:
    row, step = entry.row, entry.step
    predicted = row.predicted
    return {
        "name": entry.name,
        "place": entry.place,
        "baseline": entry.is_baseline,
        "front": on_front,
        "ranks": row.ranks,
        "step": _scaled(step.median, time),
        "low": _scaled(step.low, time),
        "high": _scaled(step.high, time),
        "memory": _scaled(entry.memory, memory),
        "tokens": _finite(row.tokens_per_second),
        "predicted": _scaled(predicted.step_seconds, time) if predicted else None,
        "predicted_memory": _scaled(predicted.memory_bytes, memory) if predicted else None,
        "error": _finite(predicted.step_seconds / step.median - 1) if predicted else None,
    }


def _phases(entry: Entry, time: Unit) -> list[Record]:
    """A traced step's phases as parts of the median step; what they do not cover is the rest.

    Tracing slows a step down: phases that take more than the median step together are scaled to fill it.
    """
    step = entry.step.median
    parts = {name: seconds for name, seconds in entry.row.phases.items() if math.isfinite(seconds) and seconds > 0}
    scale = min(1.0, step / sum(parts.values())) if parts else 1.0
    scaled = {name: seconds * scale for name, seconds in _ordered(parts, PHASES).items()}
    rest = step - sum(scaled.values())
    if rest > 1e-9 * step:
        scaled[REST] = scaled.get(REST, 0.0) + rest
    return _parts(entry, scaled, time)


def _memory(entry: Entry, memory: Unit) -> list[Record]:
    """The parts of the peak; all of it is the rest where they are not known."""
    if entry.memory is None:
        return []
    parts = {name: size for name, size in entry.row.memory_parts.items() if math.isfinite(size) and size > 0}
    return _parts(entry, _ordered(parts, MEMORY) or {REST: entry.memory}, memory)


def _activity(entry: Entry, time: Unit) -> list[Record]:
    found = entry.row.activity
    if found is None:
        return []
    seconds = (found.compute - found.overlapped, found.overlapped, found.exposed, found.idle)
    return _parts(entry, {name: max(0.0, value) for name, value in zip(ACTIVITIES, seconds, strict=True)}, time)


def _parts(entry: Entry, parts: Mapping[str, float], unit: Unit) -> list[Record]:
    """A record a part, with the order in which they are stacked and the share of the whole."""
    whole = sum(parts.values())
    return [
        {
            "name": entry.name,
            "part": printable(part),
            "order": order,
            "value": _scaled(value, unit),
            "share": _finite(value / whole) if whole else None,
        }
        for order, (part, value) in enumerate(parts.items())
    ]


def _traffic(entry: Entry, unit: Unit) -> list[Record]:
    return [
        {
            "name": entry.name,
            "axis": printable(kind.axis),
            "collective": printable(kind.collective),
            "count": _finite(kind.count),
            "of": of,
            "value": _scaled(value, unit),
        }
        for kind in entry.row.traffic
        for of, value in (("measured", kind.bytes), ("formula", kind.expected_bytes))
    ]


def _stages(entry: Entry) -> list[Record]:
    return [
        {
            "name": entry.name,
            "rank": stage.rank,
            "stages": ", ".join(map(str, stage.stages)),
            "busy": _finite(1 - stage.idle_share),
            "idle": _finite(stage.idle_share),
            "formula": None if entry.row.bubble_formula is None else _finite(1 - entry.row.bubble_formula),
        }
        for stage in sorted(entry.row.stages, key=lambda stage: stage.rank)
    ]


def _gantt(entry: Entry, time: Unit) -> list[Record]:
    end = max((action.start + action.seconds for action in entry.row.gantt), default=0.0)
    return [
        {
            "name": entry.name,
            "rank": action.rank,
            "stage": action.stage,
            "batch": action.micro_batch,
            "kind": printable(action.kind),
            "start": _scaled(action.start, time),
            "end": _scaled(action.start + action.seconds, time),
            "share": _finite(action.seconds / end) if end > 0 else None,
        }
        for action in entry.row.gantt
    ]


def _curves(study: Study) -> list[Record]:
    """Loss, its relative difference to that of the same run's reference, and gradient norm, of every step."""
    references = {run: loss_reference(study.entries, run) for run, _ in study.runs}
    base = {run: found.row.loss for run, found in references.items() if found is not None}
    return [
        {
            "name": entry.name,
            "step": step,
            "loss": _finite(loss),
            "difference": _relative(loss, expected),
            "norm": _finite(norm),
        }
        for entry in study.measured
        for step, (loss, norm, expected) in enumerate(
            _beside(entry.row.loss, entry.row.grad_norm, base.get(entry.run, ())), 1
        )
    ]


def _beside(
    loss: tuple[float, ...], norm: tuple[float, ...], base: tuple[float, ...]
) -> list[tuple[float | None, ...]]:
    steps = max(len(loss), len(norm))
    return list(zip_longest(loss, norm, base[:steps]))


def _relative(value: float | None, expected: float | None) -> float | None:
    return None if value is None or not expected else _finite(value / expected - 1)


def _ordered(parts: Mapping[str, float], first: tuple[str, ...]) -> dict[str, float]:
    names = [*(name for name in first if name in parts), *(name for name in parts if name not in first)]
    return {name: parts[name] for name in names}


def _scaled(value: float | None, unit: Unit) -> float | None:
    return None if value is None else _finite(value * unit.per_base)


def _finite(value: float | None) -> float | None:
    """Six digits, which is more than a chart shows; None for what is not finite, or larger than a drawing can be."""
    return None if value is None or not abs(value) < LARGEST else float(f"{value:.6g}")
