"""Who is waited for: the delay of a rank in each step, and what the steps would take without it.

In a collective all end together, so whoever was in it for the shortest time came last, and the others waited for it
(pytorch#117550). A step is replayed with the delay replaced by the median (arXiv 2505.05713).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_high, median_low

from meshwright.diagnose.traces.intervals import total, union
from meshwright.diagnose.traces.jobs import Shared
from meshwright.diagnose.traces.ranks import Rank, Step


@dataclass(frozen=True, slots=True)
class Delay:
    """What one rank costs the others in one step."""

    place: int
    """In the job."""
    step: int
    """In the first rank's steps; -1: the trace has none."""
    seconds: float
    """That the median of all waits longer than it."""
    saved: float
    """… and would not wait if it came with the median: others may be late too."""
    shortest: Shared
    """The collective in which it was latest."""


def delays(job: Sequence[Rank], found: Sequence[Shared]) -> list[Delay]:
    """For every step with collectives of several ranks and every rank in them."""
    by_step: dict[int, list[Shared]] = {}
    for one in found:
        by_step.setdefault(one.step, []).append(one)
    made = []
    for step, of in sorted(by_step.items()):
        exposed = {place: _exposed(rank, job, step) for place, rank in enumerate(job)}
        groups: dict[tuple[int, ...], list[Shared]] = {}
        for one in of:
            groups.setdefault(tuple(one.calls), []).append(one)
        for place in sorted({member for members in groups for member in members}):
            mine = [(members, calls) for members, calls in groups.items() if place in members]
            others = {member for members, _ in mine for member in members if member != place}
            made.append(_delay(place, step, exposed, others, [one for _, calls in mine for one in calls]))
    return made


def _delay(place: int, step: int, exposed: Mapping[int, float], others: set[int], mine: Sequence[Shared]) -> Delay:
    """Its step is as long as the others', so what it communicates less than they, it came later.

    A collective that queues behind another begins when that ends, though its data was ready before: so what it waits
    then is none of the delay, and the sum over collectives would be too much. It is an upper bound.
    """
    own, theirs = exposed[place], [exposed[other] for other in others]
    most = _waited(mine, place, max(others, key=lambda other: exposed[other]))
    beyond = median_high([own, *theirs]) - own
    saved = min(beyond, min(theirs) - own)
    latest = max(mine, key=lambda one: one.late(place))
    return Delay(place, step, max(0.0, min(beyond, most)), max(0.0, min(saved, most)), latest)


def _exposed(rank: Rank, job: Sequence[Rank], step: int) -> float:
    """Seconds of a step in which a rank is in collectives and computes nothing."""
    if step < 0:
        return rank.whole.exposed
    name = job[0].steps[step].name
    return sum(one.busy.exposed for one in rank.steps if one.name == name)


def _waited(of: Sequence[Shared], place: int, victim: int) -> float:
    """Seconds that `victim` waits for `place`, on its own clock: in two collectives at once counts once."""
    calls = [(one.calls[victim], one.calls[place].seconds) for one in of if victim in one.calls]
    return total(union([(call.start, call.end - own) for call, own in calls]))


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
