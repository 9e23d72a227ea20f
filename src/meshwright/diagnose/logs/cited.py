"""Lines of logs as evidence, and the time that they tell."""

from __future__ import annotations

from collections.abc import Iterable

from meshwright.diagnose.finding import Evidence
from meshwright.diagnose.logs.line import Line

LONGEST_TEXT = 400
"""Characters of a line that evidence repeats."""


def evidence(line: Line, rank: int | None = None, text: str = "") -> Evidence:
    """A line as evidence; `rank` is whose it is, where more is known than the line says."""
    told = (text or line.text).strip()[:LONGEST_TEXT]
    return Evidence(line.path, told, line.number, rank=line.rank if rank is None else rank)


def earliest(lines: Iterable[Line]) -> float | None:
    """The earliest time that lines tell; None: none does."""
    return min((when for line in lines if (when := line.when) is not None), default=None)
