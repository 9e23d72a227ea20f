"""Aligned tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """A borderless table; a column whose name starts with `>` is flush right. Narrow screens fold cells, never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for column in columns:
        grid.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    for row in rows:
        grid.add_row(*row)
    return grid
