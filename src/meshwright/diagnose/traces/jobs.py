"""Traces of several ranks side by side: which belong to one job, and which of their collectives are the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from meshwright.diagnose.traces.collectives import SYNCHRONISING
from meshwright.diagnose.traces.ranks import Collective, Rank

SAME_HOUR = 3600.0
"""Seconds between traces without steps that may still be one job's."""
END_TOLERANCE, END_SHARE = 2e-3, 0.25
"""Members of a collective end together: seconds, and share of its longest, that their ends may differ by after their
clocks are aligned. The wake-up of a thread takes up to milliseconds on a busy host."""
ENOUGH = 0.6
"""Share of the collectives that must end together. Below it, the order of two ranks' lists is not the same, as in
traces that were sampled."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One collective as its members have it."""

    step: int
    """In the first rank's steps; -1: it has none."""
    group: str
    kind: str
    calls: Mapping[int, Collective]
    """By the place of the member in the job's list, which is not its global rank."""
    longest: float
    """Seconds of the member that came first."""
    seconds: float
    """… and of the one that came last: how long it took once all were there."""

    def late(self, place: int) -> float:
        """Seconds after the first one that a member came: they end together, so no clocks are compared."""
        return self.longest - self.calls[place].seconds


def jobs(traces: Sequence[Rank]) -> list[list[Rank]]:
    """Traces that ran beside each other: the same world and steps, each rank once."""
    found: list[list[Rank]] = []
    for one in sorted(traces, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.path)):
        for job in found:
            if _together(job[0], one) and all(other.rank is None or other.rank != one.rank for other in job):
                job.append(one)
                break
        else:
            found.append([one])
    return found


def _together(a: Rank, b: Rank) -> bool:
    if a.world != b.world or a.on_gpu != b.on_gpu:
        return False
    if a.steps or b.steps:
        return bool({step.name for step in a.steps} & {step.name for step in b.steps})
    return abs(a.moment - b.moment) < SAME_HOUR


def is_pipeline(job: Sequence[Rank]) -> bool:
    """Whether ranks send each other messages, or their ranges name stages."""
    messages = any(call.kind in ("send", "recv") or (call.kind == "send-recv" and not rank.all_to_all)
                   for rank in job for call in rank.collectives)  # fmt: skip
    return messages or any(phase.stage for rank in job for phase in rank.phases)


def shared(job: Sequence[Rank]) -> list[Shared]:
    """The collectives that at least two ranks of a job have, by step, group, kind and order.

    In a pipeline those of the whole world are left out: its stages reach them one after the other, as they must.
    """
    staged = is_pipeline(job)
    lists: dict[tuple[str, str, str], dict[int, list[Collective]]] = {}
    for place, rank in enumerate(job):
        for call in rank.collectives:
            kind = ("all-to-all" if rank.all_to_all else "") if call.kind == "send-recv" else call.kind
            across = staged and (not call.description or call.size is None or call.size == rank.world)
            if kind in SYNCHRONISING and not across:
                step = rank.steps[call.step].name if call.step >= 0 else ""
                if step or not rank.steps:
                    lists.setdefault((step, call.group, kind), {}).setdefault(place, []).append(call)
    number = {step.name: n for n, step in enumerate(job[0].steps)}
    found = []
    for (step, group, kind), of in lists.items():
        if len(of) > 1 and (not step or step in number) and len({len(calls) for calls in of.values()}) == 1:
            for calls in zip(*of.values(), strict=True):
                lengths = [call.seconds for call in calls]
                members = dict(zip(of, calls, strict=True))
                found.append(Shared(number.get(step, -1), group, kind, members, max(lengths), min(lengths)))
    return _ending_together(found)


def _ending_together(found: Sequence[Shared]) -> list[Shared]:
    """Without those whose members end apart; nothing where that are too many."""
    pairs: dict[tuple[int, int], list[tuple[Shared, float]]] = {}
    for one in found:
        (first, own), *others = one.calls.items()
        for other, call in others:
            pairs.setdefault((first, other), []).append((one, call.end - own.end))
    apart: set[int] = set()
    for both in pairs.values():
        offset = median(difference for _, difference in both)
        for one, difference in both:
            if abs(difference - offset) > max(END_TOLERANCE, END_SHARE * one.longest):
                apart.add(id(one))
    kept = [one for one in found if id(one) not in apart]
    return kept if len(kept) >= ENOUGH * len(found) else []
