"""The plan beside the measurement: places in both orders, Spearman's correlation, regret, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from meshwright.bench.result import DONE, ONE_PROCESS, Agreement, Row
from meshwright.plan.regret import spearman


def with_places(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with their places by measured and by predicted step time, among those that have both."""
    both = [row for row in rows if _known(row)]
    measured = _places([row.step.median for row in both if row.step])
    predicted = _places([row.predicted.step_seconds for row in both if row.predicted])
    place = {row.label: pair for row, *pair in zip(both, measured, predicted, strict=True)}
    return tuple(
        replace(row, measured_place=place[row.label][0], predicted_place=place[row.label][1])
        if row.label in place
        else row
        for row in rows
    )


def agreement(rows: Sequence[Row]) -> Agreement | None:
    """How far prediction and measurement agree; None: no row has both.

    Errors are |predicted / measured - 1|. Regret: the throughput lost by the row that is predicted fastest.
    """
    both = [row for row in rows if _known(row)]
    if not both:
        return None
    measured = [row.step.median for row in both if row.step]
    predicted = [row.predicted.step_seconds for row in both if row.predicted]
    taken = measured[min(range(len(both)), key=lambda index: predicted[index])]
    memory = [
        abs(row.predicted.memory_bytes / row.memory_bytes - 1) for row in both if row.predicted and row.memory_bytes
    ]
    several = len(set(measured)) > 1 and len(set(predicted)) > 1
    return Agreement(
        rows=len(both),
        spearman=float(spearman(np.array(measured), np.array(predicted))) if several else None,
        regret=1 - min(measured) / taken,
        median_step_error=median(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)),
        median_memory_error=median(memory) if memory else None,
    )


def _known(row: Row) -> bool:
    return row.label != ONE_PROCESS and row.status == DONE and row.step is not None and row.predicted is not None


def _places(values: Sequence[float]) -> list[int]:
    """Place of each value in ascending order, from 1; equal values share the first of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + 1 for value in values]
