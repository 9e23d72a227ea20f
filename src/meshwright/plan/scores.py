"""Scores of prices against measurements: relative errors in one line of figures, and verdicts against what happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.plan.pricing import PricedRun
from meshwright.plan.published import PublishedRun
from meshwright.spec.units import GIB

RAN, OUT_OF_MEMORY, FAILED = "ran", "out of memory", "failed"
RAN_IF_TIMED = ("aleph_layouts",)
"""Sources that leave `oom` open where a run came through: a step time says so (arXiv:2311.05610)."""


@dataclass(frozen=True, slots=True)
class ErrorScore:
    """Relative errors, price / measurement - 1, of some rows; shares of one."""

    rows: int
    mape: float
    """Mean of the absolute errors."""
    median: float
    """Median of the absolute errors."""
    p90: float
    """90th percentile of the absolute errors."""
    bias: float
    """Mean of the signed errors; above zero: too slow or too big."""
    worst: float
    """Largest absolute error."""


def error_score(errors: Sequence[float]) -> ErrorScore:
    """The figures of at least one relative error."""
    signed = np.array(errors, dtype=float)
    size = np.abs(signed)
    return ErrorScore(
        rows=len(size),
        mape=float(size.mean()),
        median=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        bias=float(signed.mean()),
        worst=float(size.max()),
    )


def time_error(priced: PricedRun) -> float | None:
    """Relative error of the step time; None where none was measured or the timing cannot be relied on."""
    measured = priced.run.step_seconds
    return priced.step_seconds / measured - 1 if measured is not None and priced.run.time_ok else None


def memory_error(priced: PricedRun) -> float | None:
    """Relative error of the peak memory; None where none was measured."""
    measured = priced.run.measure("peak_mem_gib")
    return None if measured is None else priced.peak_bytes / GIB / measured - 1


def outcome(run: PublishedRun) -> str | None:
    """RAN, OUT_OF_MEMORY or FAILED (crashed or out of memory, not told apart); None: not stated."""
    said = {"y": OUT_OF_MEMORY, "n": RAN, "fail": FAILED}.get(run.text("oom"))
    if said is None and run.source in RAN_IF_TIMED and run.step_seconds is not None:
        return RAN
    return said


Error = Callable[[PricedRun], float | None]
Label = Callable[[PricedRun], str]


def scores_by(priced: Iterable[PricedRun], label: Label, error: Error) -> dict[str, ErrorScore]:
    """Scores of the rows under each label, those with most rows first; rows without a measurement are left out."""
    errors = defaultdict(list)
    for row in priced:
        if (found := error(row)) is not None:
            errors[label(row)].append(found)
    most_first = sorted(errors.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return {name: error_score(found) for name, found in most_first}


def verdicts_by_outcome(priced: Iterable[PricedRun]) -> Mapping[str, Mapping[str, int]]:
    """How often each verdict was given to runs that came through, ran out of memory, and failed."""
    found: dict[str, Counter[str]] = {RAN: Counter(), OUT_OF_MEMORY: Counter(), FAILED: Counter()}
    for row in priced:
        happened = outcome(row.run)
        if happened is not None:
            found[happened][row.verdict] += 1
    return found


def source_of(priced: PricedRun) -> str:
    """The row's source."""
    return priced.run.source


def device_of(priced: PricedRun) -> str:
    """The row's device, by its name in the catalogue."""
    return priced.nouns.cluster.device.name
