"""Stragglers: a rank that the others wait for in every step, or many that take turns; and what it did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.traces.delays import Delay, Excess, delays, excess
from meshwright.diagnose.traces.jobs import Shared, jobs, shared
from meshwright.diagnose.traces.ranks import Rank, Traces, label

SHARE = 0.1
"""Of a step. The study of a production cluster (arXiv 2505.05713) calls a job straggling from a slow-down of 1.1; two
healthy ranks differ by less."""
SHORTEST = 1e-3
"""Seconds: less is the jitter of a host's scheduler."""
MOSTLY = 2 / 3
"""Share of the steps in which it must be late: one that takes turns with others is no slow device."""
EXPLAINED = 0.4
"""Share of the delay that the largest part of what it did more must make up to be named as the cause."""
SLOWER = 1.05
"""Kernels of one name and shape vary by a few per cent between devices of one kind."""
REPEATED = 3
"""Steps that one rank alone must spoil to be named although it is not late in most: saving, logging, evaluating."""
WITNESSES = 3


def stragglers(facts: Facts) -> Iterator[Finding]:
    """Over all jobs whose traces are there."""
    for job in jobs(facts.of(Traces).ranks):
        if len(job) > 1:
            yield from _of_job(job)


def _of_job(job: Sequence[Rank]) -> Iterator[Finding]:
    same = shared(job)
    found = delays(job, same)
    by_rank: dict[int, list[Delay]] = {}
    for one in found:
        by_rank.setdefault(one.place, []).append(one)
    named = [place for place, of in by_rank.items() if _is_persistent(job, of)]
    for place in named:
        yield _persistent(job, place, by_rank[place], same)
    if not named and found:
        yield from _turns(job, found)


def step_seconds(job: Sequence[Rank], step: int) -> float:
    """How long a step, or the whole trace, takes: the median of all ranks."""
    if step < 0:
        return median(rank.whole.window for rank in job)
    name = job[0].steps[step].name
    return median(one.busy.window for rank in job for one in rank.steps if one.name == name)


def _is_persistent(job: Sequence[Rank], of: Sequence[Delay]) -> bool:
    steps = [step_seconds(job, one.step) for one in of]
    if len(of) == 1 and of[0].step < 0:  # no steps are told: the whole trace counts as one
        return of[0].seconds >= max(SHORTEST, SHARE * steps[0])
    if len(of) < 2:
        return False
    late = sum(one.seconds >= max(SHORTEST, SHARE * step) for one, step in zip(of, steps, strict=True))
    return late >= MOSTLY * len(of) and median(one.seconds for one in of) >= max(SHORTEST, SHARE * median(steps))


def _persistent(job: Sequence[Rank], place: int, of: Sequence[Delay], same: Sequence[Shared]) -> Finding:
    rank, typical = job[place], median(one.seconds for one in of)
    whole = sum(step_seconds(job, one.step) for one in of)
    gain = min(1.0, sum(one.saved for one in of) / whole) if whole > 0 else 0.0
    more = excess(job, place, [job[0].steps[one.step].name for one in of if one.step >= 0])
    category, meanwhile, change = _meanwhile(rank, more, typical)
    span = "step" if of[0].step >= 0 else "trace"
    each = "" if of[0].step >= 0 else _each(same, place)
    return Finding(
        category, WARNING, LIKELY if meanwhile else POSSIBLE, () if rank.rank is None else (rank.rank,),
        f"The others wait {typical * 1e3:.1f} ms a {span}{each} for {label(rank)}, the last to come to collectives: "
        f"{meanwhile or 'what it does meanwhile is not seen'}. Without it a {span} would be {gain:.0%} shorter.",
        _evidence(job, place, of),
        _CONFIRM[category], change, weight=2,
    )  # fmt: skip


def _each(same: Sequence[Shared], place: int) -> str:
    late = [one.late(place) for one in same if place in one.calls]
    return f" ({median(late) * 1e3:.1f} ms before each of {len(late)} collectives)"


_CONFIRM = {
    "straggler_gpu": "nvidia-smi -q -d PERFORMANCE,TEMPERATURE on its node; swap two nodes and see who is slow then.",
    "straggler_cpu": "py-spy dump of this rank during a step; the load of its host.",
    "straggler_gc": "gc.callbacks that print when they run; or gc.disable() for some steps.",
    "dataloader_bound": "Run some steps with one batch used again and again.",
}


def _meanwhile(rank: Rank, more: Excess, delay: float) -> tuple[str, str, tuple[str, ...]]:
    """Category, what the rank did more than others, and what to change."""
    other = more.idle - max(0.0, more.loading) - max(0.0, more.collecting)
    parts = {"loading": more.loading, "collecting": more.collecting, "compute": more.compute, "gap": other}
    most = max(parts, key=lambda name: parts[name])
    seconds = parts[most]
    if seconds < EXPLAINED * delay:
        return "straggler_cpu", "", _HOST_CHANGE
    if most == "loading":
        return "dataloader_bound", f"it waits {seconds * 1e3:.1f} ms a step longer for its DataLoader", _DATA_CHANGE
    if most == "collecting":
        return "straggler_gc", f"Python collects garbage for {seconds * 1e3:.1f} ms a step longer", _GC_CHANGE
    if most == "gap":
        told = f"it does nothing traced for {seconds * 1e3:.1f} ms a step longer (a gap on the host)"
        return "straggler_cpu", told, _HOST_CHANGE
    category = "straggler_gpu" if rank.on_gpu else "straggler_cpu"
    if more.slower >= SLOWER:
        told = f"the same {'kernels' if rank.on_gpu else 'operators'} take it {more.slower:.2f} times as long"
        return category, told, _DEVICE_CHANGE if rank.on_gpu else _BUSY_CHANGE
    told = f"it computes {seconds * 1e3:.1f} ms a step more, with kernels that are no slower: it has more work"
    return category, told, ("Balance the work: sequence lengths, layers a stage, experts a rank.",)


_DATA_CHANGE = (
    "Look at this rank's storage and its number of loader workers; balance the lengths of its samples.",
    "More workers, pinned memory, prefetching, decoding ahead of training.",
)
_DEVICE_CHANGE = (
    "Check clocks, temperature and power cap of this device; drain the node if they are not as elsewhere.",
    "Compare the pairwise bandwidth and a matrix product of this node with others'.",
)
_BUSY_CHANGE = ("Look for other work on this host, and for threads pinned to the same core.",)
_HOST_CHANGE = (
    "Look at what only this rank does between operators: logging, saving, sleeping, reading, another process.",
    "If it is Python's garbage collection, collect on all ranks at the same steps.",
)
_GC_CHANGE = (
    "gc.disable(), and gc.collect() on all ranks at the same steps.",
    "gc.freeze() after the start, so that less is scanned.",
)


def _turns(job: Sequence[Rank], found: Sequence[Delay]) -> Iterator[Finding]:
    """No rank is always late, but some step always waits: told with what it did if that is seen."""
    worst: dict[int, Delay] = {}
    for one in found:
        if one.step not in worst or one.seconds > worst[one.step].seconds:
            worst[one.step] = one
    spikes = [one for one in worst.values() if one.step >= 0
              and one.seconds >= max(SHORTEST, SHARE * step_seconds(job, one.step))]  # fmt: skip
    whole = sum(step_seconds(job, one.step) for one in worst.values())
    lost = sum(one.seconds for one in spikes)
    if len(worst) < 2 or whole <= 0 or lost < SHARE * whole:
        return
    reasons: dict[str, list[Delay]] = {}
    for one in spikes:
        more = excess(job, one.place, [job[0].steps[one.step].name])
        reasons.setdefault(_meanwhile(job[one.place], more, one.seconds)[0], []).append(one)
    for category, of in reasons.items():
        seen = category in _DOING
        ranks = sorted({one.place for one in of})
        one_rank = len(ranks) == 1 and len(of) >= REPEATED
        share = sum(one.seconds for one in of) / whole
        who = label(job[ranks[0]]) if len(ranks) == 1 else "one rank, not always the same"
        yield Finding(
            category, WARNING if (seen or one_rank) and share >= SHARE else INFO, LIKELY if seen else POSSIBLE,
            tuple(rank for place in ranks if (rank := job[place].rank) is not None),
            f"In {len(of)} of {len(worst)} steps all wait for {who}, "
            f"{_DOING.get(category, 'for a reason that is not seen')}: {share:.0%} of the time.",
            tuple(e for one in of[:WITNESSES] for e in _evidence(job, one.place, [one])[:1]),
            _CONFIRM[category], _GC_CHANGE if category == "straggler_gc" else _HOST_CHANGE, weight=1,
        )  # fmt: skip


_DOING = {"straggler_gc": "as Python collects garbage there", "dataloader_bound": "as its DataLoader is late"}


def _evidence(job: Sequence[Rank], place: int, of: Sequence[Delay]) -> tuple[Evidence, ...]:
    """The same collective of the culprit and of who waits longest, in the steps that are worst."""
    found = []
    for one in sorted(of, key=lambda delay: -delay.seconds)[:WITNESSES]:
        calls = one.shortest.calls
        longest = max(calls, key=lambda rank: calls[rank].seconds)
        step = job[0].steps[one.step].name if one.step >= 0 else ""
        found.append(
            Evidence(
                job[place].path,
                f"{one.shortest.kind}: {label(job[place])} {calls[place].seconds * 1e3:.2f} ms, "
                f"{label(job[longest])} {calls[longest].seconds * 1e3:.2f} ms",
                event=step, rank=job[place].rank,
            )
        )  # fmt: skip
    return tuple(found)
