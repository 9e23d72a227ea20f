"""Evidence: the published runs nearest to a plan, priced as they ran, so that a reader sees how far to trust prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.plan.pricing import price, read_nouns
from meshwright.plan.published import PublishedRun
from meshwright.plan.scored import is_scored
from meshwright.plan.scores import ErrorScore, error_score, time_error

JUDGED = 16
"""Runs that the error is taken over."""
LEAST = 5
"""Fewer say nothing of an error."""


@dataclass(frozen=True, slots=True)
class NearRun:
    """A published run and what the formulas say of it."""

    run: PublishedRun
    predicted_seconds: float | None
    """Of a step of that very run; None where too little of it is stated."""

    @property
    def error(self) -> float | None:
        """Price / measurement - 1."""
        measured = self.run.step_seconds
        return None if self.predicted_seconds is None or measured is None else self.predicted_seconds / measured - 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """Near runs, nearest first, and the error over more of them."""

    shown: tuple[NearRun, ...] = ()
    error: ErrorScore | None = None
    """Of the step time; None where fewer than LEAST runs are known well enough."""


def evidence(runs: Sequence[PublishedRun], show: int = 3) -> Evidence:
    """What published runs, nearest first, say of prices; `show` of them are told one by one."""
    read, _ = read_nouns(runs)
    priced = {row.run.id: row for row in price(read)}
    shown = [NearRun(run, priced[run.id].step_seconds if run.id in priced else None) for run in runs[:show]]
    judged = [time_error(row) for row in priced.values() if is_scored(row.run)]
    errors = [error for error in judged if error is not None]
    return Evidence(tuple(shown), error_score(errors) if len(errors) >= LEAST else None)
