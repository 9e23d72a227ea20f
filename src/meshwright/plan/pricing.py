"""Published runs priced: grouped by what all but the layout share, so that a group is priced as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost.memory import peak_memory
from meshwright.cost.step import step_time
from meshwright.cost.verdict import verdict
from meshwright.plan.published import PublishedRun
from meshwright.plan.run_nouns import RunNouns, nouns_of_run
from meshwright.spec.columns import stack
from meshwright.spec.errors import RequestError
from meshwright.spec.implementation import Implementation, implementations


@dataclass(frozen=True, slots=True)
class PricedRun:
    """A published run and what the formulas say of it."""

    run: PublishedRun
    nouns: RunNouns
    step_seconds: float
    peak_bytes: float
    verdict: str


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
    groups: dict[tuple[object, ...], list[int]] = {}
    rows = list(read)
    for index, (_, nouns) in enumerate(rows):
        c = nouns.cluster
        key = (nouns.model, c.name, c.devices_per_node, c.intra, c.inter, c.nics_per_node, nouns.workload)
        groups.setdefault(key, []).append(index)
    priced: list[PricedRun | None] = [None] * len(rows)
    for members in groups.values():
        nouns = rows[members[0]][1]
        layouts = stack([rows[i][1].layout for i in members])
        software = known[nouns.workload.implementation]
        args = (nouns.model, nouns.cluster, nouns.workload, layouts, software)
        seconds = np.broadcast_to(step_time(*args).total, (len(members),))
        peak = peak_memory(*args)
        for position, index in enumerate(members):
            bytes_, reserved = float(peak.bytes[position]), float(peak.reserved[position])
            priced[index] = PricedRun(
                run=rows[index][0],
                nouns=rows[index][1],
                step_seconds=float(seconds[position]),
                peak_bytes=bytes_,
                verdict=verdict(bytes_, reserved, nouns.cluster.device.memory_bytes),
            )
    return [run for run in priced if run is not None]
