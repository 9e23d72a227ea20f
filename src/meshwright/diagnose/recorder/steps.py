"""Where in a step a rank stands: training repeats its collectives, and the longest pause lies between two steps."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.diagnose.recorder.read import Entry

LONGEST = 128
"""Collectives of a group in a step; longer steps are not recognised."""


def begins_step(entry: Entry, history: Sequence[Entry]) -> bool | None:
    """Whether `entry` is the first collective of a step; None: its group's `history` before it repeats nothing.

    `history` holds the entries of the same rank and group before it, in order.
    """
    period = _period([(one.operation, one.inputs) for one in history], (entry.operation, entry.inputs))
    if period is None:
        return None
    pauses = [b.created_ns - a.created_ns for a, b in zip(history[-period - 1 :], history[-period:], strict=False)]
    # The oldest of the last `period` entries stands where `entry` does.
    return not pauses or pauses[0] >= max(pauses)


def _period(kinds: Sequence[tuple[str, object]], following: tuple[str, object]) -> int | None:
    """After how many entries the last ones, and `following`, come again."""
    for period in range(1, min(LONGEST, (len(kinds) - 1) // 2) + 1):
        if following == kinds[-period] and list(kinds[-period:]) == list(kinds[-2 * period : -period]):
            return period
    return None
