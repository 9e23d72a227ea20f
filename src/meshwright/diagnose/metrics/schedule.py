"""A learning rate that is at its end at total / processes: the scheduler is stepped once for every process.

accelerate's scheduler.py steps num_processes times where batches are not split (accelerate #2926, diffusers #3954).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.pairs import Stretch, stretches

ENDED = 0.02
"""Of the highest rate: a schedule that is so low has come to its end."""
NEAR = 0.03
"""The end is found to the step that was printed, and warm-up counts to it."""
POINTS = 8


def schedule(facts: Facts) -> Iterator[Finding]:
    """A schedule that ends too early by a whole factor, or that begins again."""
    for one in stretches(facts):
        rates = [(point, value) for point in one.points if math.isfinite(value := point.values.get("lr", math.nan))]
        if len(rates) < POINTS:
            continue
        highest = max(value for _, value in rates)
        top = next(at for at, (_, value) in enumerate(rates) if value == highest)
        low = min(value for _, value in rates)
        end = next((at for at in range(top, len(rates)) if rates[at][1] <= max(ENDED * highest, low)), None)
        while end is not None and end + 1 < len(rates) and rates[end + 1][1] < rates[end][1]:
            end += 1
        if end is None or highest <= 0 or low > 0.2 * highest or end >= len(rates) - 2:
            continue
        yield from _ended(one, rates[end][0].step, end, [value for _, value in rates], highest)


def _ended(one: Stretch, step: int, end: int, rates: list[float], highest: float) -> Iterator[Finding]:
    total, ranks = _total(one), one.job.world
    repeats = max(rates[end:]) > 0.5 * highest
    factor = total / step if total and step else 0.0
    whole = round(factor) if factor else 0
    fits = whole >= 2 and abs(factor / whole - 1) <= NEAR
    if not repeats and not fits:
        return
    by_ranks = bool(ranks) and abs(factor / ranks - 1) <= NEAR if factor else False
    then = " and rises again" if repeats else ""
    share = f", {factor:.3g} times before the end at {total}" if factor else ""
    yield Finding(
        "lr_schedule_scaling", WARNING, LIKELY if by_ranks else POSSIBLE, (),
        f"The learning rate is at its end at step {step}{share}{then}"
        + (f": the schedule advances {ranks} times a step, once for each process." if by_ranks else
           ": the schedule seems to advance several times a step, or is meant to repeat."),
        tuple(one.run.evidence(point) for point in one.points if point.step == step)[:1],
        "Print scheduler.last_epoch beside the optimizer's step.",
        ("Multiply the scheduler's warm-up and total steps by the number of processes, or do not give it to "
         "accelerator.prepare().",), weight=1,
    )  # fmt: skip


def _total(one: Stretch) -> int:
    told = one.job.number("steps")
    printed = max((point.values.get("total", 0.0) for point in one.points), default=0.0)
    return int(printed) if math.isfinite(printed) and printed > 0 else told
