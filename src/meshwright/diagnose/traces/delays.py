"""Who is waited for: the delay of a rank in each step, and what the steps would take without it.

In a collective all end together, so whoever was in it for the shortest time came last, and the others waited for it
(pytorch#117550). A step is replayed with the delay replaced by the median (arXiv 2505.05713).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, median_low

from meshwright.diagnose.traces.intervals import total, union
from meshwright.diagnose.traces.jobs import Shared, shared
from meshwright.diagnose.traces.ranks import Rank, Step


@dataclass(frozen=True, slots=True)
class Delay:
    """What one rank costs the others in one step."""

    place: int
    """In the job."""
    step: int
    """In the first rank's steps; -1: the trace has none."""
    seconds: float
    """That the earliest waits for it, beyond the median of all."""
    saved: float
    """… and would not wait if it came with the median: others may be late too."""
    shortest: Shared
    """The collective in which it was latest."""


def delays(job: Sequence[Rank]) -> list[Delay]:
    """For every step with collectives of several ranks and every rank in them."""
    by_step: dict[int, list[Shared]] = {}
    for one in shared(job):
        by_step.setdefault(one.step, []).append(one)
    return [
        _delay(place, step, of)
        for step, of in sorted(by_step.items())
        for place in sorted({rank for one in of for rank in one.ranks})
    ]


def _delay(place: int, step: int, of: Sequence[Shared]) -> Delay:
    """On the clock of the rank that waits most: waiting in two collectives at once counts once."""
    mine = [one for one in of if place in one.ranks]
    waits = {rank: sum(one.calls[one.ranks.index(rank)].seconds for one in mine if rank in one.ranks)
             for one in mine for rank in one.ranks if rank != place}  # fmt: skip
    victim = max(waits, key=lambda rank: waits[rank])
    beyond: list[tuple[float, float]] = []
    gained: list[tuple[float, float]] = []
    for one in mine:
        if victim in one.ranks:
            late, own = one.late, one.late[one.ranks.index(place)]
            there = one.ranks.index(victim)
            zero = one.calls[there].start - late[there]
            begin = zero + max(one.median_late, late[there])
            beyond.append((begin, zero + own))
            rest = max((value for n, value in enumerate(late) if one.ranks[n] != place), default=0.0)
            gained.append((max(begin, zero + rest), zero + own))
    latest = max(mine, key=lambda one: one.late[one.ranks.index(place)])
    return Delay(place, step, total(union(beyond)), total(union(gained)), latest)


@dataclass(frozen=True, slots=True)
class Excess:
    """What a rank did more than the others in its steps: seconds a step, medians."""

    compute: float
    idle: float
    loading: float
    collecting: float
    slower: float
    """How much longer the same kernels or operators took, weighted by their time: 1 is as long as the others'."""


def excess(job: Sequence[Rank], place: int, steps: Sequence[str]) -> Excess:
    """One rank against the median of the others, in the steps that are named."""

    def of(what: str) -> float:
        found = []
        for name in steps:
            values = {n: _value(step, what) for n, rank in enumerate(job) for step in rank.steps if step.name == name}
            others = [value for n, value in values.items() if n != place]
            if place in values and others:
                found.append(values[place] - median_low(others))
        return median(found) if found else 0.0

    return Excess(of("compute"), of("idle"), of("loading"), of("collecting"), _slower(job, place))


def _value(step: Step, what: str) -> float:
    return {
        "compute": step.busy.compute, "idle": step.busy.idle, "loading": step.loading, "collecting": step.collecting,
    }[what]  # fmt: skip


def _slower(job: Sequence[Rank], place: int) -> float:
    weight = weighted = 0.0
    for name, own in job[place].work.items():
        others = [rank.work[name].median for n, rank in enumerate(job) if n != place and name in rank.work]
        if others and (usual := median_low(others)) > 0:
            weighted += own.seconds
            weight += own.seconds / (own.median / usual) if own.median > 0 else own.seconds
    return weighted / weight if weight > 0 else 1.0
