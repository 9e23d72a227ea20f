"""Which published runs a price is held against: those of which enough is known to price them as they ran."""

from __future__ import annotations

from meshwright.plan.published import PublishedRun

RECOMPUTE_TRUSTED = ("ultrascale",)
"""Sources whose rows leave `recompute_known` open although their software is known to recompute nothing."""


def is_scored(run: PublishedRun) -> bool:
    """Whether what the run recomputed is known: without that its time is uncertain by a third.

    A table without the column `recompute_known` is taken at its word wherever `recompute` is stated.
    """
    known = run.row.get("recompute_known", "y" if run.recompute else "n") == "y"
    return known or run.source in RECOMPUTE_TRUSTED
