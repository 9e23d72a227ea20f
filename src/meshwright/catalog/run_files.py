"""The published runs: `runs/runs.csv`, and tables that users keep in the same columns.

Nothing is checked or converted here; `plan.history` turns rows into runs and refuses what is wrong.
"""

from __future__ import annotations

import csv
from pathlib import Path

FILE = Path(__file__).parent / "runs" / "runs.csv"

Rows = list[tuple[int, list[str]]]
"""The line on which a row ends, and its cells."""


def read_runs_table(path: Path = FILE) -> tuple[list[str], Rows]:
    """A CSV file's header and rows; empty lines are skipped.

    Raises OSError, UnicodeDecodeError and csv.Error as the standard library does.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        return header, [(reader.line_num, cells) for cells in reader if cells]
