"""How long steps take: slow ones at a period, a share that waits for data, a time that grows, pauses of the collector.

Periods: open_clip #703 (every num_workers steps). Growth: verl PR #4103. Pauses: arXiv 2505.05713 (garbage collection
as a straggler), marin #9224.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.pairs import job_of
from meshwright.diagnose.metrics.series import Pauses, Point, Run, runs

WARM_UP = 5
"""Steps that compile, allocate and tune."""
SLOW = 1.5
"""A step that takes so many times the median is slow; ordinary jitter is a few per cent."""
TIMES = 4
"""Slow steps that make a period."""
OF_EXCESS = 0.7
"""Of the time by which slow steps exceed the others: so much is waiting for data, and the rest is noise."""
DATA_SHARE = 0.2
"""Of a step: less is seldom worth the work."""
GROWTH = 1.3
"""Last quarter of the steps against the first; each quarter slower than the one before."""
GROWTH_POINTS = 20
PAUSE = 0.1
"""Seconds. A collection of the youngest objects takes less."""
IMBALANCE = 2.0
"""Largest share of tokens over the mean: an expert rank then works twice as long as it would evenly (arXiv 2101.03961
takes capacity factors of 1 to 2)."""
Timed = Sequence[tuple[Point, float]]


def slow_steps(facts: Facts) -> Iterator[Finding]:
    """Slow steps at equal distances."""
    for run in runs(facts):
        times = run.of("seconds")[WARM_UP:]
        if len(times) < 3 * TIMES or not run.counted:
            continue
        middle = median(value for _, value in times)
        slow = [(point, value) for point, value in times if value > SLOW * middle]
        period = _period([point.step for point, _ in slow])
        if not period or len(slow) < TIMES:
            continue
        workers = job_of(facts, run.path).number("workers")
        by_data = _is_data(times, slow, middle)
        is_loader = by_data or (workers > 1 and period == workers)
        why = (
            f", and {workers} is the number of loader workers: each delivers one batch and all are late together."
            if is_loader and period == workers
            else ", and what it takes longer is the time that it waits for data."
            if by_data
            else ": a checkpoint, an evaluation, or a pause such as garbage collection."
        )
        worst = max(value for _, value in slow)
        yield Finding(
            "dataloader_bound" if is_loader else "straggler_gc", WARNING if is_loader else INFO,
            LIKELY if is_loader else POSSIBLE, (),
            f"Every {period} steps one takes up to {worst / middle:.1f} times as long{why}",
            tuple(run.evidence(point) for point, _ in slow[:3]), "Measure the time of next(loader) beside the step's.",
            ("Use more loader workers and a larger prefetch_factor, or data that is decoded before." if is_loader
             else "See what runs at that period; collect garbage at the same step on all ranks.",), weight=1,
        )  # fmt: skip


def _is_data(times: Timed, slow: Timed, middle: float) -> bool:
    """Whether the excess of slow steps is the time that they wait for data."""
    waits = [wait[0] for point, _ in times if (wait := _wait(point)) is not None]
    told = [(value - middle, wait[0]) for point, value in slow if (wait := _wait(point)) is not None]
    if not waits or not told:
        return False
    usual = median(waits)
    return sum(wait - usual for _, wait in told) >= OF_EXCESS * sum(excess for excess, _ in told)


def _period(steps: list[int]) -> int:
    gaps = {b - a for a, b in pairwise(steps)}
    return gaps.pop() if len(gaps) == 1 and min(gaps) > 1 else 0


def waiting_for_data(facts: Facts) -> Iterator[Finding]:
    """A large share of all steps' time is spent on the next batch."""
    for run in runs(facts):
        if (share := _data_share(run)) > DATA_SHARE:
            point = next(one for one in run.points if one.values.keys() & {"data_share", "data_seconds"})
            yield Finding(
                "dataloader_bound", WARNING, LIKELY, (), f"{share:.0%} of the time of all steps is waiting for data.",
                (run.evidence(point),), "Train on one batch again and again: the step then takes as long as without "
                    "waiting.",
                ("Use more loader workers, pinned memory and prefetching.",
                 "Decode or tokenise before, and keep data on a fast local disk."), weight=1,
            )  # fmt: skip


def _data_share(run: Run) -> float:
    """Of the time of a run's steps, what they wait for data; 0: too few tell it."""
    points = run.points[WARM_UP:]
    means = next((one.values for one in reversed(points) if {"mean_data", "mean_seconds"} <= one.values.keys()), None)
    pairs = [pair for one in points if (pair := _wait(one)) is not None]
    if len(pairs) < TIMES:
        return 0.0
    if means is not None and means["mean_seconds"] > 0:
        return means["mean_data"] / means["mean_seconds"]
    # One step that waits long, as at the start of an epoch, is no habit.
    usual = _sum_share(sorted(pairs)[: -max(1, len(pairs) // 50)])
    return _sum_share(pairs) if usual > DATA_SHARE else usual


def _sum_share(pairs: Sequence[tuple[float, float]]) -> float:
    total = sum(time for _, time in pairs)
    return sum(wait for wait, _ in pairs) / total if total > 0 else 0.0


def _wait(point: Point) -> tuple[float, float] | None:
    """Seconds that a step waits for data, and all of its; of a share alone, shares of 1."""
    time, share = point.values.get("seconds"), point.values.get("data_share", math.nan)
    wait = point.values.get("data_seconds", math.nan)
    if 0 <= share <= 1:
        time = 1.0 if time is None else time
        wait = share * time
    return (wait, time) if time is not None and 0 <= wait <= 1.01 * time < math.inf else None


def growing(facts: Facts) -> Iterator[Finding]:
    """Steps of a mixture of experts that take longer and longer."""
    for run in runs(facts):
        times = run.of("seconds")[WARM_UP:]
        is_moe = (
            any("aux_loss" in point.values for point in run.points[:20])
            or job_of(facts, run.path).number("experts") > 1
        )
        tokens = {
            point.values[name] for point, _ in times for name in ("tokens", "global_batch") if name in point.values
        }
        if len(times) < GROWTH_POINTS or not is_moe or len(tokens) > 1:
            continue
        quarters = _quarters([value for _, value in times])
        steady = all(a <= b for a, b in pairwise(quarters))
        if quarters[0] > 0 and steady and quarters[-1] > GROWTH * quarters[0]:
            yield Finding(
                "moe_imbalance", WARNING, POSSIBLE, (),
                f"The steps of a mixture of experts take {quarters[-1] / quarters[0]:.1f} times as long at the end "
                f"as at the "
                "start, with as many tokens: the router may send ever more of them to few experts.",
                (run.evidence(times[0][0]), run.evidence(times[-1][0])), "Log the largest share of tokens of an "
                    "expert.",
                ("Use a load-balancing loss (moe_aux_loss_coeff) or a capacity factor.",),
            )  # fmt: skip


def _quarters(values: list[float]) -> list[float]:
    size = len(values) // 4
    return [median(values[at * size : (at + 1) * size]) for at in range(4)]


def unequal_experts(facts: Facts) -> Iterator[Finding]:
    """Lists of tokens or experts that a log names."""
    for counts, evidence in facts.of(Pauses).counts:
        mean = sum(counts) / len(counts)
        if len(counts) >= 4 and mean > 0 and max(counts) > IMBALANCE * mean:
            yield Finding(
                "moe_imbalance", WARNING, LIKELY, (),
                f"Of {len(counts)} experts or their ranks the fullest has {max(counts) / mean:.1f} times the mean.",
                (evidence,), "Log these counts at every step.",
                ("Balance the router (auxiliary loss, capacity factor), and spread experts evenly over ranks.",),
            )  # fmt: skip
            return


def collections(facts: Facts) -> Iterator[Finding]:
    """Pauses of Python's garbage collector that a log tells."""
    long = [(seconds, evidence) for seconds, evidence in facts.of(Pauses).collections if seconds >= PAUSE]
    if long:
        worst = max(seconds for seconds, _ in long)
        yield Finding(
            "straggler_gc", WARNING, LIKELY, tuple(sorted({one.rank for _, one in long if one.rank is not None})),
            f"Python's garbage collector pauses a rank for {worst:.2g} s, and the others wait for it.",
            tuple(evidence for _, evidence in long[:4]), "Run with gc.disable() for some steps.",
            ("Call gc.disable() and gc.collect() at the same step on all ranks.",
             "Call gc.freeze() after set-up, so that long-lived objects are not searched."), weight=1,
        )  # fmt: skip
