"""How long steps take: slow ones at a period, a share that waits for data, a time that grows, pauses of the collector.

Periods: open_clip #703 (every num_workers steps). Growth: verl PR #4103. Pauses: arXiv 2505.05713 (garbage collection
as a straggler), marin #9224.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.pairs import job_of
from meshwright.diagnose.metrics.series import Pauses, runs

WARM_UP = 5
"""Steps that compile, allocate and tune."""
SLOW = 1.5
"""A step that takes so many times the median is slow; ordinary jitter is a few per cent."""
TIMES = 4
"""Slow steps that make a period."""
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
        is_loader = workers > 1 and period == workers
        worst = max(value for _, value in slow)
        yield Finding(
            "dataloader_bound" if is_loader else "straggler_gc", WARNING if is_loader else INFO,
            LIKELY if is_loader else POSSIBLE, (),
            f"Every {period} steps one takes up to {worst / middle:.1f} times as long"
            + (f", and {workers} is the number of loader workers: each delivers one batch and all are late together."
               if is_loader else ": a checkpoint, an evaluation, or a pause such as garbage collection."),
            tuple(run.evidence(point) for point, _ in slow[:3]), "Measure the time of next(loader) beside the step's.",
            ("Use more loader workers and a larger prefetch_factor, or data that is decoded before." if is_loader
             else "See what runs at that period; collect garbage at the same step on all ranks.",), weight=1,
        )  # fmt: skip


def _period(steps: list[int]) -> int:
    gaps = {b - a for a, b in pairwise(steps)}
    return gaps.pop() if len(gaps) == 1 and min(gaps) > 1 else 0


def waiting_for_data(facts: Facts) -> Iterator[Finding]:
    """A large share of the step is spent on the next batch."""
    for run in runs(facts):
        shares = [value for _, value in run.of("data_share") if 0 <= value <= 1][WARM_UP:]
        if not shares:
            both = [one for one in run.points[WARM_UP:] if {"data_seconds", "seconds"} <= one.values.keys()]
            shares = [one.values["data_seconds"] / one.values["seconds"] for one in both if one.values["seconds"] > 0]
        if len(shares) >= TIMES and (share := median(shares)) > DATA_SHARE:
            point = next(one for one in run.points if one.values.keys() & {"data_share", "data_seconds"})
            yield Finding(
                "dataloader_bound", WARNING, LIKELY, (), f"{share:.0%} of a step's time is waiting for data.",
                (run.evidence(point),), "Train on one batch again and again: the step then takes as long as without "
                    "waiting.",
                ("Use more loader workers, pinned memory and prefetching.",
                 "Decode or tokenise before, and keep data on a fast local disk."), weight=1,
            )  # fmt: skip


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
