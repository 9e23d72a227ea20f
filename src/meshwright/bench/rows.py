"""From what the ranks of a layout's runs measured to its Row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from meshwright.bench.pipeline import Pipeline, pipeline_of
from meshwright.bench.result import Activity, MeasuredTraffic, Row, Spread
from meshwright.cost.wire import WireOptions, compare, wire
from meshwright.cost.wire.compare import shared_axis
from meshwright.cost.wire_row import WireRow
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

Ranks = Sequence[Mapping[str, Any]]
"""The numbers of every rank of one run."""


def spread_of(values: Sequence[float]) -> Spread:
    """Median, 10th and 90th percentile."""
    low, high = np.percentile(values, (10, 90))
    return Spread(float(median(values)), float(low), float(high), tuple(values))


def row_of(label: str, model: Model, workload: Workload, layout: Layout, runs: Sequence[Ranks], status: str) -> Row:
    """The Row of a layout that has run at least once."""
    slowest = [seconds for ranks in runs for seconds in slowest_steps(ranks)]
    step = spread_of(slowest)
    first = runs[0]
    peaks = [max(run[rank]["memory_bytes"] for run in runs) for rank in range(len(first))]
    fullest = max(range(len(peaks)), key=lambda rank: peaks[rank])
    pipeline = pipeline_of(first, layout, workload) if layout.pipeline > 1 else Pipeline()
    skipped = sum(ranks[0]["skipped"] for ranks in runs)
    joules = [one["joules"] for ranks in runs for one in ranks]
    return Row(
        label=label,
        layout=str(layout),
        ranks=layout.devices,
        status=status,
        reason=f"fp16: {skipped} of {len(slowest)} timed steps overflowed and were skipped" if skipped else "",
        step=step,
        tokens_per_second=workload.tokens / step.median,
        samples_per_second=workload.global_batch / step.median,
        memory_bytes=peaks[fullest],
        memory_kind=first[0]["memory_kind"],
        memory_parts=_parts(peaks[fullest], first[fullest]["states"]),
        rank_memory_bytes=tuple(peaks),
        phases=_mean([one["traced"]["phases"] for one in first if one.get("traced")]),
        activity=_activity([one["traced"]["busy"] for one in first if one.get("traced")]),
        traffic=traffic_of(model, workload, layout, first),
        stages=pipeline.stages,
        bubble=pipeline.bubble,
        bubble_formula=pipeline.formula,
        gantt=pipeline.gantt,
        loss=tuple(first[0]["loss"]),
        grad_norm=tuple(first[0]["grad_norm"]),
        joules_per_step=None if any(value is None for value in joules) else sum(joules) / len(runs),
    )


def slowest_steps(ranks: Ranks) -> list[float]:
    """Seconds of each timed step on the rank that took longest."""
    return [max(of_ranks) for of_ranks in zip(*(one["seconds"] for one in ranks), strict=True)]


def loss_error(loss: Sequence[float], reference: Sequence[float]) -> float | None:
    """Greatest relative difference over the steps that both have; None: they share none."""
    pairs = list(zip(loss, reference, strict=False))
    errors = [abs(a - b) / abs(b) if b else math.inf for a, b in pairs]
    return max(errors, default=None)


def traffic_of(model: Model, workload: Workload, layout: Layout, ranks: Ranks) -> tuple[MeasuredTraffic, ...]:
    """Collectives of a step on the rank that sends most, beside the formulas, and how long they took on all."""
    options = WireOptions.of(workload, layout.zero_stage)
    found = []
    for one in ranks:
        recorded = [WireRow(**row) for row in one["traffic"]]
        found.append(compare(model, layout, recorded, wire(model, workload, layout, one["rank"], options)))
    busiest = max(range(len(found)), key=lambda rank: sum(line.bytes for line in found[rank]))
    times = _times(model, layout, ranks)
    return tuple(
        MeasuredTraffic(
            line.axis, line.collective, line.count, line.bytes, line.expected_bytes,
            *times.get((line.axis, line.collective), (None, None)),
        )
        for line in found[busiest]
    )  # fmt: skip


def _times(model: Model, layout: Layout, ranks: Ranks) -> dict[tuple[str, str], tuple[float, float]]:
    """Mean seconds and exposed seconds of the traced ranks, by axis and kind."""
    traced = [one["traced"]["sent"] for one in ranks if one.get("traced")]
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    for sent in traced:
        for row in sent:
            key = (shared_axis(model, layout, row["axis"]), row["collective"])
            before = sums.get(key, (0.0, 0.0))
            sums[key] = (before[0] + row["seconds"], before[1] + row["exposed"])
    return {key: (seconds / len(traced), exposed / len(traced)) for key, (seconds, exposed) in sums.items()}


def _parts(peak: float, states: Mapping[str, float]) -> dict[str, float]:
    """What lies in memory at the peak: states that are always there, and the rest."""
    return {**states, "activations, gradients, buffers": max(peak - sum(states.values()), 0.0)}


def _mean(ranks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over ranks by name; a rank without a phase spent no time in it."""
    names = dict.fromkeys(name for one in ranks for name in one)
    return {name: fmean(one.get(name, 0.0) for one in ranks) for name in names}


def _activity(ranks: Sequence[Mapping[str, float]]) -> Activity | None:
    if not ranks:
        return None
    mean = _mean(ranks)
    return Activity(mean["compute"], mean["communication"], mean["overlapped"], mean["exposed"], mean["idle"])
