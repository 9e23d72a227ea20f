"""The table of all rows as HTML: one line a layout, failed ones with their reason, every head a button that sorts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from meshwright.cost.result import FITS
from meshwright.report.study import Entry, Study, usable
from meshwright.report.words import status_of
from meshwright.spec.units import binary, duration, percent


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows, and the number by which it is sorted."""

    shown: str = ""
    value: float | None = None
    under: str = ""
    """A second, softer line."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; left out where no row has anything for it."""

    head: str
    cell: Callable[[Entry], Cell]


def results_table(study: Study, folder: Path) -> str:
    """The table with its notes. `folder` is where the page stands: traces that are in it are linked."""
    columns = [column for column in COLUMNS if any(column.cell(entry).shown for entry in study.entries)]
    heads = "".join(
        f'<th scope="col"{_head_class(head)}><button type="button">{escape(head)}</button></th>'
        for head in ("#", "layout", *(column.head for column in columns), "status")
    )
    rows = "\n".join(_line(entry, columns, folder) for entry in study.entries)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Results, a row a layout">\n'
        f'<table class="sortable">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n'
        + "".join(f'<p class="notes">{escape(note)}</p>\n' for note in notes(study))
    )


def notes(study: Study) -> list[str]:
    """What the columns mean where it differs from bench to bench, and why predictions are missing."""
    kinds = dict.fromkeys(entry.row.memory_kind for entry in study.measured if entry.row.memory_kind)
    found = ["Step: median of the slowest rank and half the range from the 10th to the 90th percentile."]
    if kinds:
        found[0] += f" Memory: {'; '.join(kinds)}, of the fullest rank."
    missing: dict[str, list[str]] = defaultdict(list)
    for entry in study.entries:
        if entry.row.prediction_missing:
            missing[entry.row.prediction_missing].append(entry.name)
    return found + [f"No prediction of {', '.join(names)}: {why}." for why, names in missing.items()]


def _head_class(head: str) -> str:
    return {"layout": ' class="text"', "status": ' class="status"'}.get(head, "")


def _line(entry: Entry, columns: list[Column], folder: Path) -> str:
    kind = " ".join(["baseline"] * entry.is_baseline + ["failed"] * (entry.place is None))
    cells = "".join(_cell(column.cell(entry)) for column in columns)
    place = _cell(Cell("" if entry.place is None else str(entry.place), entry.place))
    status = f'<td class="status">{escape(status_of(entry))}</td>'
    return f'<tr class="{kind}">{place}{_name(entry, folder)}{cells}{status}</tr>'


def _name(entry: Entry, folder: Path) -> str:
    """Layout, as printed where that differs, trace and reason."""
    row = entry.row
    parts = [f'<span class="name">{escape(entry.name)}</span>']
    if entry.is_baseline:
        parts.append('<span class="tag">baseline</span>')
    if more := _unsaid(entry):
        parts.append(f'<span class="under">{escape(more)}</span>')
    if trace := _trace(row.trace, folder):
        parts.append(f'<a class="under" href="{escape(trace)}">trace</a>')
    if entry.place is None:
        reason = f": {row.reason}" if row.reason else ""
        parts.append(f'<span class="reason">{escape(status_of(entry) + reason)}</span>')
    return f'<th scope="row" class="text" data-value="{escape(entry.name)}">{"".join(parts)}</th>'


def _unsaid(entry: Entry) -> str:
    """What the printed layout says beyond the name: its other tokens, or all of it where the name is another text."""
    said = set(entry.row.label.split())
    tokens = entry.row.layout.split()
    more = [token for token in tokens if token not in said]
    return " ".join(more if said <= set(tokens) else tokens)


def _trace(path: str, folder: Path) -> str:
    """The address of a trace that lies under the page's folder; empty for anything else."""
    try:
        file = (folder / path).resolve()
        inside = bool(path) and file.is_relative_to(folder.resolve()) and file.is_file()
        return quote(f"./{file.relative_to(folder.resolve())}") if inside else ""
    except (OSError, ValueError):
        # No name that a file could have.
        return ""


def _cell(cell: Cell) -> str:
    value = "" if cell.value is None or not math.isfinite(cell.value) else f' data-value="{cell.value:.9g}"'
    under = f'<span class="under">{escape(cell.under)}</span>' if cell.under else ""
    return f"<td{value}>{escape(cell.shown)}{under}</td>"


def _number(value: float | None, show: Callable[[float], str], under: str = "") -> Cell:
    if value is None or not math.isfinite(value):
        return Cell("" if value is None else "not finite", None, under)
    return Cell(show(value), value, under)


def _step(entry: Entry) -> Cell:
    if entry.place is None:
        return Cell()
    half = (entry.step.high - entry.step.low) / 2
    return _number(entry.step.median, duration, f"± {duration(half)}" if math.isfinite(half) and half >= 0 else "")


def _memory(entry: Entry) -> Cell:
    found = entry.row.predicted
    predicted = None if found is None else usable(found.memory_bytes)
    doubt = "" if found is None or found.verdict == FITS else f", {found.verdict}"
    under = f"predicted {binary(predicted)}{doubt}" if predicted else ""
    return _number(entry.row.memory_bytes, binary, under)


def _exposed(entry: Entry) -> Cell:
    found = entry.row.activity
    if found is None:
        return Cell()
    whole = found.compute + found.exposed + found.idle
    return _number(
        found.exposed, duration, percent(found.exposed / whole) if whole > 0 and math.isfinite(whole) else ""
    )


def _bubble(entry: Entry) -> Cell:
    formula = entry.row.bubble_formula
    return _number(entry.row.bubble, percent, "" if formula is None else f"formula {percent(formula)}")


def _predicted(entry: Entry) -> Cell:
    found = entry.row.predicted
    return Cell() if found is None else _number(found.step_seconds, duration)


def _error(entry: Entry) -> Cell:
    found = entry.row.predicted
    if found is None or entry.place is None:
        return Cell()
    return _number(found.step_seconds / entry.step.median - 1, lambda error: f"{error * 100:+.1f} %")


def _planned_place(entry: Entry) -> Cell:
    place, measured = entry.row.predicted_place, entry.row.measured_place
    return Cell() if place is None else Cell(str(place), place, f"measured {measured}" if measured is not None else "")


COLUMNS = (
    Column("ranks", lambda entry: Cell(str(entry.row.ranks), entry.row.ranks)),
    Column("step", _step),
    Column("tokens/s", lambda entry: _number(entry.row.tokens_per_second, lambda rate: f"{rate:,.0f}")),
    Column("MFU", lambda entry: _number(entry.row.mfu, percent)),
    Column("memory", _memory),
    Column("exposed communication", _exposed),
    Column("bubble", _bubble),
    Column("predicted step", _predicted),
    Column("error", _error),
    Column("predicted place", _planned_place),
    Column(
        "loss difference", lambda entry: _number(entry.row.loss_error, lambda error: f"{error:.1e}" if error else "0")
    ),
    Column("joules a step", lambda entry: _number(entry.row.joules_per_step, lambda joules: f"{joules:,.4g}")),
)
