"""Regret: what taking the layout with the lowest price would have cost, where published runs differ in nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.result import DOES_NOT_FIT
from meshwright.plan.pricing import PricedRun

SAME_JOB = (
    "source", "params_b", "hidden", "layers", "seq_len", "gpu", "gpus", "global_batch", "precision", "attention",
)  # fmt: skip
"""Columns in which the runs of a group agree: what is left to differ is the layout."""
LEAST_ROWS = 6
"""Groups with fewer timed runs rank nothing."""
TOO_NOISY = ("ultrascale",)
"""Sources whose timings vary too much between equal runs to rank layouts by."""


@dataclass(frozen=True, slots=True)
class GroupScore:
    """How well prices rank the layouts of one job."""

    key: Mapping[str, str]
    """The cells of SAME_JOB that the runs share."""
    rows: int
    regret: float
    """Share of the best measured throughput that the run with the lowest price loses."""
    random_regret: float
    """The same for a run picked at random."""
    spearman: float
    """Rank correlation of prices and measurements; nan where all prices or all measurements are the same."""
    pick: str
    """Id of the timed run with the lowest price."""
    best: str
    """Id of the fastest run."""
    choice: str
    """Id of the run with the lowest price of all that are said to fit, timed or not; "" where none is."""
    pick_out_of_memory: bool
    """That run ran out of memory."""


@dataclass(frozen=True, slots=True)
class Regret:
    """The regret of all jobs together; shares of the best measured throughput."""

    groups: int
    mean: float
    median: float
    p90: float
    worst: float
    random: float
    """Mean over jobs of a random pick's."""
    spearman: float
    """Median over jobs."""
    picks_out_of_memory: int
    """Jobs whose pick ran out of memory."""


def regret_of(groups: Sequence[GroupScore]) -> Regret | None:
    """The figures over at least one job, else None."""
    if not groups:
        return None
    lost = np.array([group.regret for group in groups])
    return Regret(
        groups=len(groups),
        mean=float(lost.mean()),
        median=float(np.median(lost)),
        p90=float(np.quantile(lost, 0.9)),
        worst=float(lost.max()),
        random=float(np.mean([group.random_regret for group in groups])),
        spearman=float(np.nanmedian([group.spearman for group in groups])),
        picks_out_of_memory=sum(group.pick_out_of_memory for group in groups),
    )


def group_scores(priced: Iterable[PricedRun]) -> tuple[GroupScore, ...]:
    """A score for every job of which at least LEAST_ROWS runs were timed, the greatest regret first."""
    jobs: dict[tuple[str, ...], list[PricedRun]] = {}
    for row in priced:
        if row.run.source not in TOO_NOISY:
            jobs.setdefault(tuple(row.run.text(column) for column in SAME_JOB), []).append(row)
    found = []
    for key, members in jobs.items():
        timed = [row for row in members if row.run.time_ok and row.run.step_seconds is not None]
        if len(timed) >= LEAST_ROWS:
            found.append(_score(dict(zip(SAME_JOB, key, strict=True)), timed, members))
    return tuple(sorted(found, key=lambda group: -group.regret))


def _score(key: Mapping[str, str], timed: Sequence[PricedRun], members: Sequence[PricedRun]) -> GroupScore:
    prices = np.array([row.step_seconds for row in timed])
    measured = np.array([row.run.step_seconds for row in timed], dtype=float)
    pick, best = int(np.argmin(prices)), int(np.argmin(measured))
    lost = 1 - measured[best] / measured
    fitting = [row for row in members if row.verdict != DOES_NOT_FIT]
    choice = min(fitting, key=lambda row: row.step_seconds, default=None)
    return GroupScore(
        key=key,
        rows=len(timed),
        regret=float(lost[pick]),
        random_regret=float(lost.mean()),
        spearman=spearman(prices, measured),
        pick=timed[pick].run.id,
        best=timed[best].run.id,
        choice=choice.run.id if choice else "",
        pick_out_of_memory=choice is not None and choice.run.out_of_memory,
    )


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Rank correlation: Pearson's of the ranks, equal values sharing their mean rank; nan where one is constant."""
    one, other = _ranks(a), _ranks(b)
    one, other = one - one.mean(), other - other.mean()
    scale = float(np.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / scale if scale else float("nan")


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks
