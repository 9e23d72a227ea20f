"""A table as PyTorch's schedules write and read it: one CSV row a rank, one cell an action."""

from __future__ import annotations

import csv
import io

from meshwright.cost.schedules.action import Cell, Table, parse_cell
from meshwright.cost.schedules.consistency import check_table
from meshwright.spec.errors import LayoutError


def format_table(table: Table) -> str:
    """The table as CSV text, readable by `_load_csv(..., format="compute_only")` of PyTorch's multi-stage schedules."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()


def parse_table(text: str) -> Table:
    """Read CSV text with one row a rank; empty cells are waits and are left out.

    Raises LayoutError naming row and column of a cell that is no compute action, and for a table that no pipeline
    could run (see `check_table`).
    """
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise LayoutError(f"schedule table: {error}") from None
    table = [_row(rank, cells) for rank, cells in enumerate(rows)]
    check_table(table)
    return table


def _row(rank: int, cells: list[str]) -> list[Cell]:
    row: list[Cell] = []
    for column, text in enumerate(cells, start=1):
        if text.strip():
            try:
                row.append(parse_cell(text))
            except LayoutError as error:
                raise LayoutError(f"schedule table, row {rank + 1} (rank {rank}), column {column}: {error}") from None
    return row
