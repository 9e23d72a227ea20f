"""Pairs of runs that can be compared: different files, or one file before and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from meshwright.diagnose.configuration.settings import Job, Settings, folder, joined
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import Evidence
from meshwright.diagnose.metrics.series import Point, Run, runs

MOST_COMPARED = 24
"""Files; pairs grow with the square."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps of a run without a restart, with the job that made them."""

    run: Run
    points: tuple[Point, ...]
    job: Job

    def by_step(self, name: str) -> dict[int, float]:
        """The value of each step that has one."""
        return {one.step: one.values[name] for one in self.points if name in one.values}

    def at(self, step: int) -> Evidence:
        """The line of a step."""
        return self.run.evidence(next(one for one in self.points if one.step == step))

    @property
    def name(self) -> str:
        """For a sentence: the file."""
        return self.run.path.rpartition("/")[2]


def stretches(facts: Facts) -> list[Stretch]:
    """Of each file the run of its lowest rank, cut where its steps go back."""
    lowest: dict[str, Run] = {}
    for run in runs(facts):
        before = lowest.get(run.path)
        if run.counted and (before is None or _rank(run) < _rank(before)):
            lowest[run.path] = run
    return [
        Stretch(run, part, job_of(facts, run.path))
        for run in list(lowest.values())[:MOST_COMPARED]
        for part in _parts(run.points)
    ]


def pairs(facts: Facts) -> Iterator[tuple[Stretch, Stretch]]:
    """Every two that are not two ranks of one job."""
    for a, b in combinations(stretches(facts), 2):
        same_job = a.run.rank != b.run.rank and None not in (a.run.rank, b.run.rank)
        if not same_job or folder(a.run.path) != folder(b.run.path):
            yield a, b


def job_of(facts: Facts, path: str) -> Job:
    """What the file itself says of its job, then its folder's files, but not those that are other runs' own."""
    files = facts.of(Settings).of
    own = files.get(path, {})
    others = {run.path for run in runs(facts)} - {path}
    beside = [found for other, found in files.items() if other not in others and folder(other) == folder(path)]
    return Job({**joined(beside), **own})


def _rank(run: Run) -> int:
    return -1 if run.rank is None else run.rank


def _parts(points: list[Point]) -> Iterator[tuple[Point, ...]]:
    start = 0
    for at in range(1, len(points) + 1):
        if at == len(points) or points[at].step < points[at - 1].step:
            yield tuple(points[start:at])
            start = at
