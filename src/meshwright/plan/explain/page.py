"""Page: what an explanation says, without saying how it is printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

YOURS = "With your numbers"
"""The heading of the section that works the formula through."""


@dataclass(frozen=True, slots=True)
class Table:
    """A small table; a column whose name starts with `>` holds numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with lines of text, and a table below them."""

    heading: str
    lines: tuple[str, ...]
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One account with the reader's numbers."""

    topic: str
    title: str
    sections: tuple[Section, ...]
    sources: tuple[str, ...]
    numbers: Mapping[str, Any]
    """What the page computed: bytes, seconds, shares of 1 and counts."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A Table from any sequences."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows))


def account(
    topic: str,
    title: str,
    *,
    what: str,
    formula: Sequence[str],
    steps: Sequence[str],
    shown: Table,
    sent: str = "",
    saved: str = "",
    use: str,
    avoid: str,
    sources: Sequence[str],
    numbers: Mapping[str, Any],
) -> Page:
    """A page of the usual order: what, formula, this job, sent, saved, when, when not; empty ones are left out."""
    sections = (
        Section("What", (what,)),
        Section("Formula", tuple(formula)),
        Section(YOURS, tuple(steps), shown),
        Section("What is sent", (sent,)),
        Section("What it saves", (saved,)),
        Section("Use it", (use,)),
        Section("Do not", (avoid,)),
    )
    kept = tuple(section for section in sections if section.lines != ("",))
    return Page(topic, title, kept, tuple(sources), dict(numbers))
