"""WireRow: collectives of one kind on one axis, as counted from formulas (`wire`) and as recorded (`modes.record`)."""

from __future__ import annotations

from dataclasses import dataclass

SMALL = 512
"""Bytes up to which a collective's tensor counts as small: counters, losses, norms."""


@dataclass(frozen=True, slots=True)
class WireRow:
    """What one rank sends in one step."""

    axis: str
    collective: str
    """all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, reduce, gather, scatter, send."""
    count: int
    """0 where the formulas do not say how many (DDP's buckets)."""
    bytes: float
    """Sent by this rank; whole unless a tensor does not divide by its ranks."""
    small: bool = False
    """Each of them has a tensor of at most SMALL bytes."""
    approximate: bool = False
    """Depends on the data (which experts tokens visit)."""
