"""Series: the steps of a run, as far as its metrics say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import Evidence
from meshwright.diagnose.logs.line import time_of

MOST_POINTS = 200_000
"""Steps kept of all runs, which is some 150 MB. Of more, long runs keep every second one."""
MOST_SCALES = 100_000
"""Overflows kept of one run."""
SHORT, NEWEST = 1000, 64
"""Steps of a run that is kept whole; steps at the end of a long one that are."""
MOST_RUNS = 2048
TEXT = 240
"""Characters kept of a line."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one line says of one step."""

    step: int
    values: Mapping[str, float]
    line: int | None
    text: str
    year: int
    """Of the file, for `when`."""

    @property
    def when(self) -> float | None:
        """As a line's; it is seldom asked for."""
        return time_of(self.text, self.year)


@dataclass(frozen=True, slots=True)
class Scale:
    """The loss scale after an overflow."""

    before: float
    after: float
    line: int
    text: str
    point: int
    """Steps that had been printed by then."""
    year: int

    @property
    def when(self) -> float | None:
        """As a line's."""
        return time_of(self.text, self.year)


@dataclass
class Run:
    """What one rank printed into one file."""

    path: str
    rank: int | None
    points: list[Point] = field(default_factory=list)
    scales: list[Scale] = field(default_factory=list)
    counted: bool = True
    """Whether steps are the program's own numbers; else they are counted lines."""
    printed: int = 0
    """Steps that were added, kept or not."""

    def thin(self) -> None:
        """Keeps every second step, the newest, and those that are not finite."""
        if len(self.points) > SHORT:
            end = len(self.points) - NEWEST
            self.points = [
                one
                for at, one in enumerate(self.points)
                if at % 2 == 0 or at >= end or not math.isfinite(one.values.get("loss", 0.0))
            ]

    def of(self, name: str, finite: bool = True) -> list[tuple[Point, float]]:
        """Points that have a value of this name, in the order of the file."""
        found = ((one, one.values[name]) for one in self.points if name in one.values)
        return [(point, value) for point, value in found if not finite or math.isfinite(value)]

    def by_step(self, name: str) -> dict[int, float]:
        """The last value of each step."""
        return {point.step: value for point, value in self.of(name)}

    def evidence(self, point: Point | Scale) -> Evidence:
        """The line."""
        return Evidence(self.path, point.text, point.line, rank=self.rank)


@dataclass
class Pauses:
    """Pauses of Python's garbage collector, and other texts with numbers about a step."""

    collections: list[tuple[float, Evidence]] = field(default_factory=list)
    iterations: list[tuple[str, int, Evidence]] = field(default_factory=list)
    """An optimizer's own count of iterations at an overflow, by file."""
    timers: dict[str, int] = field(default_factory=dict)
    """The highest step that a throughput timer counted, by file."""
    said: dict[str, tuple[float, Evidence]] = field(default_factory=dict)
    """Numbers in sentences, by name."""
    counts: list[tuple[tuple[float, ...], Evidence]] = field(default_factory=list)
    """Lists of tokens per expert."""


@dataclass
class Metrics:
    """All runs."""

    of: dict[tuple[str, int | None], Run] = field(default_factory=dict)
    count: int = 0
    """Steps that are kept, or more."""

    def add(self, run: Run, point: Point) -> None:
        """Adds a step; where there are too many, thins the runs first."""
        if self.count >= MOST_POINTS:
            for one in self.of.values():
                one.thin()
            self.count = sum(len(one.points) for one in self.of.values())
            if self.count >= MOST_POINTS * 3 // 4:
                return  # very many short runs, or losses that are not finite
        run.points.append(point)
        run.printed += 1
        self.count += 1

    def run(self, path: str, rank: int | None) -> Run | None:
        """The run to add to; None: there are too many."""
        key = (path, rank)
        if key not in self.of:
            if len(self.of) >= MOST_RUNS:
                return None
            self.of[key] = Run(path, rank)
        return self.of[key]


def runs(facts: Facts) -> Iterator[Run]:
    """Runs that have steps."""
    return (run for run in facts.of(Metrics).of.values() if run.points)
