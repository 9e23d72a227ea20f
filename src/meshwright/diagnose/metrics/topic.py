"""Metric lines as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.metrics import (
    compare,
    divergence,
    document,
    not_finite,
    overflow,
    pace,
    ranks,
    schedule,
    sharding,
    work,
)  # fmt: skip
from meshwright.diagnose.metrics.read import collect
from meshwright.diagnose.metrics.series import runs
from meshwright.diagnose.topic import Document, Topic


def _checked(facts: Facts) -> Iterator[str]:
    found = list(runs(facts))
    if found:
        steps = sum(len(run.points) for run in found)
        yield (
            f"{steps:,} steps in {len(found)} series of metrics: NaN, overflow, gradient norms and losses of runs "
            f"against each "
            "other, learning rate, step times, MFU"
        )


def _missing(facts: Facts) -> Iterator[str]:
    if not any(runs(facts)):
        yield "metrics of the steps (loss, gradient norm, learning rate, step time)"


METRICS = Topic(
    "metrics",
    rules=(
        overflow.overflow, not_finite.not_a_number, compare.grad_norms, compare.growing_loss, compare.resumed,
        compare.batch_and_rate, divergence.divergence, schedule.schedule,
        sharding.same_on_all_ranks, sharding.same_every_epoch,
        pace.slow_steps, pace.waiting_for_data, pace.growing, pace.unequal_experts, pace.collections, ranks.slow_ranks,
        work.too_much,
        work.too_little,
        work.launches,
    ),
    checked=_checked, missing=_missing, documents=(Document("metrics", document.looks_like, document.read),),
    collect=collect,
)  # fmt: skip
