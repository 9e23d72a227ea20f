"""Step times of ranks beside each other: one that is slower than the others at the same steps.

Where collectives end every step, all ranks are as slow as the slowest, and their times say nothing. Ranks that print
their own time, or synchronise seldom, differ: FALCON (arXiv 2410.12588) and Megatron-LM's straggler detection compare
ranks so. Threshold as in traces: 10 % at the median.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from meshwright.diagnose.configuration.settings import folder
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.pace import OF_EXCESS
from meshwright.diagnose.metrics.series import Run, runs

SLOWER = 1.10
"""Of the median of all ranks: less is jitter (`traces.stragglers` has the same)."""
STEPS = 5
"""Shared steps: a median of fewer is chance."""
Ranks = Mapping[int, Run]


def slow_ranks(facts: Facts) -> Iterator[Finding]:
    """Ranks that take longer than the others, step for step."""
    groups: dict[str, dict[int, Run]] = {}
    for run in runs(facts):
        if run.rank is not None and run.counted:
            groups.setdefault(folder(run.path), {}).setdefault(run.rank, run)
    for ranks in groups.values():
        times = {rank: run.by_step("seconds") for rank, run in ranks.items()}
        times = {rank: own for rank, own in times.items() if own}
        steps = sorted(set.intersection(*(set(own) for own in times.values()))) if len(times) > 1 else []
        usual = {step: median(own[step] for own in times.values()) for step in steps}
        steps = [step for step in steps if usual[step] > 0]
        if len(steps) < STEPS:
            continue
        factors = {rank: median(own[step] / usual[step] for step in steps) for rank, own in times.items()}
        slow = sorted((rank for rank, factor in factors.items() if factor >= SLOWER), key=lambda one: -factors[one])
        if (slow and 2 * len(slow) < len(times)) or (len(times) == 2 and _differ(factors)):
            yield _finding(ranks, slow or [max(factors, key=lambda one: factors[one])], factors, steps)


def _differ(factors: Mapping[int, float]) -> bool:
    """Whether one of two ranks is slower than the other: their median lies between them."""
    return max(factors.values()) >= SLOWER * min(factors.values())


def _finding(ranks: Ranks, slow: list[int], factors: Mapping[int, float], steps: list[int]) -> Finding:
    worst = slow[0]
    others = median(factor for rank, factor in factors.items() if rank not in slow)
    factor = factors[worst] / others if others > 0 else factors[worst]
    waits = _waits_more(ranks, worst, slow, steps)
    also = f" (so are ranks {', '.join(map(str, sorted(slow)[:16]))})" if len(slow) > 1 else ""
    run = ranks[worst]
    beside = next(one for rank, one in sorted(ranks.items()) if rank not in slow)
    return Finding(
        "dataloader_bound" if waits else "straggler_gpu", WARNING, POSSIBLE, tuple(sorted(slow)),
        f"Rank {worst} takes {factor:.2f} times as long for a step as the other ranks, at the median of {len(steps)} "
        f"steps that they share{also}" + (": it waits longer for its data." if waits else "."),
        tuple(one.evidence(next(point for point in one.points if point.step == steps[-1])) for one in (run, beside)),
        "Exchange the device or the node of this rank for another: whether the slowness stays with it.",
        (("See why this rank's data are slower: its shard, its files, its node's disk and cores.",) if waits else (
            "Look at the clocks, the temperature and other processes of this rank's GPU (nvidia-smi -q -d "
            "PERFORMANCE,CLOCK).",
            "See that this rank has no more work than the others (uneven stages, experts or sequences), then leave "
            "the node out.",
        )), weight=1,
    )  # fmt: skip


def _waits_more(ranks: Ranks, worst: int, slow: list[int], steps: list[int]) -> bool:
    """Whether the slow rank's excess is the time that it waits for data."""
    waits = {rank: run.by_step("data_seconds") for rank, run in ranks.items()}
    times = {rank: run.by_step("seconds") for rank, run in ranks.items()}
    beside = [rank for rank in ranks if rank not in slow and waits[rank].keys() >= set(steps)]
    if not beside or not waits[worst].keys() >= set(steps):
        return False
    excess, waited = (
        sum(own[worst][step] - median(own[rank][step] for rank in beside) for step in steps) for own in (times, waits)
    )
    return excess > 0 and waited >= OF_EXCESS * excess
