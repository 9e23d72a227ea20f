"""Which published runs prices are held against: those asked for, if enough is known to price them as they ran."""

from __future__ import annotations

from collections.abc import Iterable

from meshwright.plan.published import PublishedRun
from meshwright.spec.cluster_catalog import near
from meshwright.spec.errors import RequestError

NAMES = {"source": "source", "gpu": "device", "role": "role"}
"""What people call the columns that runs are chosen by."""
RECOMPUTE_TRUSTED = ("ultrascale",)
"""Sources whose rows leave `recompute_known` open although their software is known to recompute nothing."""


def is_scored(run: PublishedRun) -> bool:
    """Whether what the run recomputed is known: without that its time is uncertain by a third.

    A table without the column `recompute_known` is taken at its word wherever `recompute` is stated.
    """
    known = run.row.get("recompute_known", "y" if run.recompute else "n") == "y"
    return known or run.source in RECOMPUTE_TRUSTED


def select_runs(
    runs: Iterable[PublishedRun], source: str = "", device: str = "", role: str = ""
) -> tuple[PublishedRun, ...]:
    """Runs of one source, whose device's name holds `device` (any case), of one role; "" is any.

    Raises RequestError where nothing matches, with the nearest names.
    """
    found = tuple(runs)
    for column, wanted, matches in (
        ("source", source, lambda cell: cell == source),
        ("gpu", device, lambda cell: device.lower() in cell.lower()),
        ("role", role, lambda cell: cell == role),
    ):
        cells = sorted({run.text(column) for run in found})
        if wanted:
            found = tuple(run for run in found if matches(run.text(column)))
        if not found:
            raise RequestError(f"No run has the {NAMES[column]} {wanted[:40]!r}.", near(wanted, cells))
    return found
