"""Aligned tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, header: bool = True) -> Table:
    """A borderless table; a column whose name starts with `>` is flush right. Narrow screens fold cells, never cut.

    Cells are plain text: brackets in them are no markup.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    box = SIMPLE_HEAD if header else None
    grid = Table(
        box=box, show_header=header, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        # The first column names the row: it is never folded.
        grid.add_column(column.removeprefix(">"), justify=justify, overflow="fold", no_wrap=not grid.columns)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def titled(title: str, body: Table) -> Group:
    """A table under a line of its own, which may be wider than the table."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group("", Text(title, style="bold"), Padding(body, (0, 0, 0, 2), expand=False))
