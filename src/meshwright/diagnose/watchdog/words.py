"""Collectives and ranks in words."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.diagnose.watchdog.facts import Timeout

MOST = 12
"""Ranks that are shown."""


def told(one: Timeout) -> str:
    """`ALLREDUCE of 9,801,523 elements`."""
    size = "" if one.elements_in is None else f" of {one.elements_in:,} element{'' if one.elements_in == 1 else 's'}"
    return f"{one.operation or 'a collective'}{size}"


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 1, 2`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:MOST]))}{', …' if len(ranks) > MOST else ''}"
