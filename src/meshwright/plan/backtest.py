"""Backtest: every published run priced and held against what was measured."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.plan.pricing import PricedRun, Unpriced, price, read_nouns
from meshwright.plan.published import PublishedRun
from meshwright.plan.regret import GroupScore, Regret, group_scores, regret_of
from meshwright.plan.scored import is_scored
from meshwright.plan.scores import (
    Error,
    ErrorScore,
    device_of,
    memory_error,
    scores_by,
    source_of,
    time_error,
    verdicts_by_outcome,
)
from meshwright.spec.errors import RequestError
from meshwright.spec.units import GIB

FIT, VALIDATE = "fit", "validate"
ROLES = (VALIDATE, FIT)
ERRORS: Mapping[str, Error] = {"time": time_error, "memory": memory_error}


@dataclass(frozen=True, slots=True)
class Scores:
    """The errors of some rows."""

    rows: int
    overall: Mapping[str, ErrorScore]
    """Of all rows with a measurement, by quantity (time, memory); a quantity that nobody measured is left out."""
    sources: Mapping[str, ErrorScore]
    """Of the step time, by source."""
    devices: Mapping[str, ErrorScore]
    """Of the step time, by the catalogue's device."""
    memory: Mapping[str, ErrorScore]
    """Of the peak memory, by source."""
    memory_devices: Mapping[str, ErrorScore]
    verdicts: Mapping[str, Mapping[str, int]]
    """Rows by what happened and by the verdict."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The error on the `validate` rows of a set that other tools have been measured on."""

    name: str
    quantity: str
    """time or memory."""
    score: ErrorScore


@dataclass(frozen=True, slots=True)
class Backtest:
    """How wrong the prices are, on which runs."""

    priced: tuple[PricedRun, ...]
    """Every run that has a price, scored or not."""
    unpriced: tuple[Unpriced, ...]
    scored: tuple[PricedRun, ...]
    """The runs that count below."""
    unscored: Mapping[str, int]
    """By source, priced runs of which too little is known to hold them against their price."""
    scores: Scores
    by_role: Mapping[str, Scores]
    headlines: tuple[Headline, ...]
    groups: tuple[GroupScore, ...]
    """Jobs that were run in several layouts, the greatest regret first."""

    @property
    def rows(self) -> int:
        """Runs looked at."""
        return len(self.priced) + len(self.unpriced)

    @property
    def regret(self) -> Regret | None:
        """Over all groups; None where there are none."""
        return regret_of(self.groups)


def backtest(runs: Iterable[PublishedRun], *, all_rows: bool = False) -> Backtest:
    """Price runs and score the prices; `all_rows` counts those too of which it is not known what they recomputed."""
    read, unpriced = read_nouns(runs)
    priced = price(read)
    scored = tuple(row for row in priced if all_rows or is_scored(row.run))
    counted = {row.run.id for row in scored}
    return Backtest(
        priced=tuple(priced),
        unpriced=tuple(unpriced),
        scored=scored,
        unscored=Counter(row.run.source for row in priced if row.run.id not in counted),
        scores=_scores(scored),
        by_role={role: _scores([row for row in scored if row.run.text("role") == role]) for role in ROLES},
        headlines=_headlines(scored),
        groups=group_scores(scored),
    )


def _scores(rows: Iterable[PricedRun]) -> Scores:
    kept = tuple(rows)
    return Scores(
        rows=len(kept),
        overall={
            quantity: score
            for quantity, error in ERRORS.items()
            for score in scores_by(kept, lambda _: "", error).values()
        },
        sources=scores_by(kept, source_of, time_error),
        devices=scores_by(kept, device_of, time_error),
        memory=scores_by(kept, source_of, memory_error),
        memory_devices=scores_by(kept, device_of, memory_error),
        verdicts=verdicts_by_outcome(kept),
    )


def _from(source: str, several_nodes: bool | None = None) -> Callable[[PricedRun], bool]:
    def belongs(row: PricedRun) -> bool:
        placed = several_nodes in (None, row.nouns.cluster.nodes > 1)
        return placed and row.run.source == source and row.run.text("role") == VALIDATE

    return belongs


HEADLINES: tuple[tuple[str, str, Callable[[PricedRun], bool]], ...] = (
    ("Korthikanti 2022, table 5", "time", _from("korthikanti2022")),
    ("vTrain, multi-node", "time", _from("vtrain", several_nodes=True)),
    ("vTrain, single-node", "time", _from("vtrain", several_nodes=False)),
    ("Ultra-Scale", "time", _from("ultrascale")),
    ("Ultra-Scale", "memory", _from("ultrascale")),
)


def _headlines(scored: Iterable[PricedRun]) -> tuple[Headline, ...]:
    rows = tuple(scored)
    found = []
    for name, quantity, belongs in HEADLINES:
        scores = scores_by(filter(belongs, rows), source_of, ERRORS[quantity])
        found += [Headline(name, quantity, score) for score in scores.values()]
    return tuple(found)


def write_prices(path: Path, priced: Iterable[PricedRun]) -> None:
    """Write a CSV file of `id, predicted_step_seconds, predicted_peak_gib, verdict`, whole or not at all.

    Raises RequestError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("id", "predicted_step_seconds", "predicted_peak_gib", "verdict"))
            writer.writerows((row.run.id, row.step_seconds, row.peak_bytes / GIB, row.verdict) for row in priced)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RequestError(f"{path} cannot be written: {error.strerror or error}.") from error
