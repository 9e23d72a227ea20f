"""Published runs priced, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost.memory import peak_memory
from meshwright.cost.step import step_time
from meshwright.cost.verdict import verdict
from meshwright.plan.published import PublishedRun
from meshwright.plan.run_groups import run_groups
from meshwright.plan.run_nouns import RunNouns, nouns_of_run
from meshwright.spec.errors import RequestError
from meshwright.spec.implementation import Implementation, implementations


@dataclass(frozen=True, slots=True)
class PricedRun:
    """A published run and what the formulas say of it."""

    run: PublishedRun
    nouns: RunNouns
    step_seconds: float
    peak_bytes: float
    """As the run's own figure was read."""
    verdict: str
    """Of the fullest rank."""


@dataclass(frozen=True, slots=True)
class Unpriced:
    """A run that has no price, and why."""

    run: PublishedRun
    reason: str


def read_nouns(runs: Iterable[PublishedRun]) -> tuple[list[tuple[PublishedRun, RunNouns]], list[Unpriced]]:
    """Runs with their nouns, and those that have none."""
    read, unpriced = [], []
    for run in runs:
        try:
            read.append((run, nouns_of_run(run)))
        except RequestError as error:
            unpriced.append(Unpriced(run, str(error)))
    return read, unpriced


def price(
    read: Iterable[tuple[PublishedRun, RunNouns]], classes: Mapping[str, Implementation] | None = None
) -> list[PricedRun]:
    """Step seconds, peak bytes and verdict of every run, in the order given."""
    known = classes or implementations()
    rows = list(read)
    priced: list[PricedRun | None] = [None] * len(rows)
    for group in run_groups([nouns for _, nouns in rows]):
        software = known[group.workload.implementation]
        args = (group.model, group.cluster, group.workload, group.layouts, software)
        seconds = np.broadcast_to(step_time(*args).total, group.rows.shape)
        peak = peak_memory(*args)
        host = np.broadcast_to(peak.host, group.rows.shape)
        seen = np.broadcast_to(group.reading.bytes(peak, group.cluster.device), group.rows.shape)
        for position, index in enumerate(group.rows):
            run, nouns = rows[index]
            priced[index] = PricedRun(
                run=run,
                nouns=nouns,
                step_seconds=float(seconds[position]),
                peak_bytes=float(seen[position]),
                verdict=verdict(
                    float(peak.reserved[position]),
                    nouns.cluster.device.memory_bytes,
                    float(host[position]),
                    nouns.cluster.host_memory_bytes,
                ),
            )
    return [run for run in priced if run is not None]
