"""Aligned tables that fit the terminal: on a narrow one bars go first, then the columns that matter least."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from meshwright.cli.bars import EIGHTHS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderResult
    from rich.measure import Measurement

GAP = 2
"""Spaces between columns."""


@dataclass(frozen=True)
class Column:
    """One column with its cells."""

    name: str
    cells: tuple[str, ...]
    right: bool
    dropped: int = 0
    """Narrow screens do without the columns of the highest number first; 0: always shown."""

    @cached_property
    def is_bar(self) -> bool:
        """Whether the cells are bars, which repeat the number beside them."""
        return any(self.cells) and all(set(cell) <= set(EIGHTHS) for cell in self.cells)

    @cached_property
    def natural(self) -> int:
        """Characters of the widest cell."""
        return max(map(len, (self.name, *self.cells)), default=0)

    @cached_property
    def least(self) -> int:
        """Characters below which a number or a word would break."""
        words = [word for text in (self.name, *(() if self.right else self.cells)) for word in text.split()]
        return max(map(len, (*words, *(self.cells if self.right else ()))), default=0)


@dataclass(frozen=True)
class Fitted:
    """A table for Rich that chooses its columns and their widths by the room there is."""

    columns: tuple[Column, ...]
    header: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        shown = fitting(self.columns, options.max_width)
        grid = Table(
            box=SIMPLE_HEAD if self.header else None,
            show_header=self.header,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            header_style="bold",
        )
        for column, width in zip(shown, widths(shown, options.max_width), strict=True):
            # Folding cuts nothing off where even the longest word finds no room.
            grid.add_column(column.name, justify="right" if column.right else "left", overflow="fold", width=width)
        for row in zip(*(column.cells for column in shown), strict=True):
            grid.add_row(*(Text(cell) for cell in row))
        yield grid

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(1, min(total([c.natural for c in self.columns]), options.max_width))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, header: bool = True, drop: Sequence[str] = ()
) -> Fitted:
    """A borderless table; a column whose name starts with `>` is flush right and its cells never break.

    Other cells wrap at spaces. `drop` names the columns that narrow screens do without, the first one first; bars
    go before them. Cells are plain text: brackets in them are no markup.
    """
    body = [tuple(row) for row in rows]
    return Fitted(
        tuple(
            Column(
                name := written.removeprefix(">"),
                tuple(row[index] for row in body),
                right=written.startswith(">"),
                dropped=len(drop) - drop.index(name) if name in drop else 0,
            )
            for index, written in enumerate(columns)
        ),
        header,
    )


def total(sizes: Sequence[int]) -> int:
    """Characters of a line with columns of these sizes."""
    return sum(sizes) + GAP * max(len(sizes) - 1, 0)


def fitting(columns: Sequence[Column], room: int) -> list[Column]:
    """The columns that are shown: without bars where a line is too long, then without what is dropped."""
    shown = list(columns)
    if total([column.natural for column in shown]) > room:
        shown = [column for column in shown if not column.is_bar]
    while total([column.least for column in shown]) > room and any(column.dropped for column in shown):
        shown.remove(max(shown, key=lambda column: column.dropped))
    return shown


def widths(columns: Sequence[Column], room: int) -> list[int]:
    """Widths that fit into `room`: the widest columns wrap first, the first one last, and words break only after."""
    sizes = [column.natural for column in columns]
    floors = [column.least for column in columns]
    for may_shrink, least in (
        (range(1, len(columns)), floors),
        (range(len(columns)), floors),
        (range(len(columns)), [1] * len(columns)),
    ):
        while total(sizes) > room:
            wide = [index for index in may_shrink if sizes[index] > least[index]]
            if not wide:
                break
            sizes[max(wide, key=lambda index: sizes[index])] -= 1
    return sizes


def titled(title: str, body: Fitted) -> Group:
    """A table under a line of its own, which may be wider than the table."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group("", Text(title, style="bold"), Padding(body, (0, 0, 0, 2), expand=False))
