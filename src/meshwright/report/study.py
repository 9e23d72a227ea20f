"""Study: the rows of one bench, or of several, under names that differ, and whether they may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.bench.result import DONE, ONE_PROCESS, Bench, Row, Spread

SAME_WORK = ("model", "seq_len", "global_batch", "precision", "optimizer")
"""What runs must agree in: same model, same data, same global batch, same precision, same optimizer."""
LARGEST = 1e18
"""No number of a bench is this large."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row under the name that the report gives it."""

    run: str
    """Name of its bench."""
    name: str
    """Differs from every other entry's; opens with the run where there are several."""
    row: Row
    is_baseline: bool = False
    place: int | None = None
    """By step time, from 1, among the rows it may be compared with; None: not measured."""

    @property
    def step(self) -> Spread:
        """Of a measured row."""
        assert self.row.step is not None
        return self.row.step

    @property
    def memory(self) -> float | None:
        """Peak bytes; None where there is no usable number."""
        return usable(self.row.memory_bytes)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which the runs' work differs."""

    what: str
    values: tuple[tuple[str, str], ...]
    """Run and its value."""


@dataclass(frozen=True, slots=True)
class Study:
    """What a report is about."""

    runs: tuple[tuple[str, Bench], ...]
    entries: tuple[Entry, ...]
    """The measured ones, fastest first, then the others as they were asked for."""
    differences: tuple[Difference, ...] = ()
    """Not empty: the runs cannot be compared with each other."""

    @property
    def measured(self) -> tuple[Entry, ...]:
        """Entries with a step time, fastest first."""
        return tuple(entry for entry in self.entries if entry.place is not None)

    @property
    def groups(self) -> tuple[tuple[Entry, ...], ...]:
        """Entries that may be compared with each other: all of them, or those of each run."""
        if not self.differences:
            return (self.entries,)
        return tuple(tuple(entry for entry in self.entries if entry.run == name) for name, _ in self.runs)

    @property
    def front(self) -> frozenset[str]:
        """Names of the entries of which no comparable one is as good in time and memory and better in one."""
        return frozenset(name for group in self.groups for name in _front(group))


def printable(text: str) -> str:
    """One line of printable letters: what a chart, a table and a terminal can show."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()) or "?"


def loss_reference(entries: Sequence[Entry], run: str) -> Entry | None:
    """The row whose loss a run's others are held against, as `bench.sweep` does: one process, else the baseline."""
    of_run = [entry for entry in entries if entry.run == run and entry.row.loss]
    alone = sorted((e for e in of_run if e.row.ranks == 1), key=lambda e: e.row.label != ONE_PROCESS)
    return next(iter([*alone, *(entry for entry in of_run if entry.is_baseline)]), None)


def usable(value: float | None) -> float | None:
    """`value` where it is above 0 and no larger than any quantity of a bench is."""
    return value if value is not None and 0 < value < LARGEST else None


def is_measured(row: Row) -> bool:
    """Whether the row ran and has a step time."""
    return row.status == DONE and row.step is not None and usable(row.step.median) is not None


def same_within_noise(one: Spread, other: Spread) -> bool:
    """Whether the ranges from the 10th to the 90th percentile of two quantities overlap."""
    return one.low <= other.high and other.low <= one.high


def make_study(runs: Sequence[tuple[str, Bench]]) -> Study:
    """The Study of these named benches; the names must differ."""
    several = len(runs) > 1
    entries: list[Entry] = []
    taken: set[str] = set()
    for run, bench in runs:
        labels = [row.label for row in bench.rows]
        for row in bench.rows:
            name = printable(row.label if labels.count(row.label) == 1 else row.layout)
            name = _free(f"{run}: {name}" if several else name, taken)
            taken.add(name)
            is_baseline = row.label == bench.baseline and not any(e.is_baseline and e.run == run for e in entries)
            entries.append(Entry(run, name, row, is_baseline))
    study = Study(tuple(runs), tuple(entries), _differences(runs))
    return replace(study, entries=_in_order(study))


def _free(name: str, taken: set[str]) -> str:
    """`name`, or with the first number that makes it differ."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


def _in_order(study: Study) -> tuple[Entry, ...]:
    placed: dict[str, int] = {}
    for group in study.groups:
        ran = sorted((entry for entry in group if is_measured(entry.row)), key=lambda entry: entry.step.median)
        placed |= {entry.name: place for place, entry in enumerate(ran, 1)}
    entries = [replace(entry, place=placed.get(entry.name)) for entry in study.entries]
    return tuple(sorted(entries, key=lambda e: (e.place is None, e.step.median if e.place is not None else 0.0)))


def _differences(runs: Sequence[tuple[str, Bench]]) -> tuple[Difference, ...]:
    found = []
    for what in SAME_WORK:
        values = [(name, bench.work.get(what)) for name, bench in runs]
        if any(value != values[0][1] for _, value in values):
            found.append(Difference(what, tuple((name, _shown(value)) for name, value in values)))
    return tuple(found)


def _shown(value: Any) -> str:
    return "not said" if value is None else str(value)[:60]


def _front(group: Sequence[Entry]) -> list[str]:
    """Names of the entries that no other one beats in step time and memory."""
    points = [(e.step.median, size, e.name) for e in group if e.place is not None and (size := e.memory) is not None]
    return [
        name
        for seconds, size, name in points
        if not any(s <= seconds and m <= size and (s < seconds or m < size) for s, m, _ in points)
    ]
