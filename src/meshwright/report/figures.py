"""From the charts to plain Vega-Lite: specs with data by name for the page, and complete ones for pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from altair.utils.schemapi import debug_mode

from meshwright.report.charts import Figure, draw_all
from meshwright.report.charts.common import CONFIG, INK, PAPER, PICTURE_WIDTH
from meshwright.report.study import Study
from meshwright.report.tables import Record, make_tables
from meshwright.train.config.files import write_atomically

PICTURE_SCALE = 1.5
"""Pixels of a PNG for each of the chart's."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The figures of one report."""

    figures: tuple[Figure, ...]
    specs: Mapping[str, dict[str, Any]]
    """Vega-Lite by figure's key, with its data by name."""
    records: Mapping[str, list[Record]]
    """The data that any spec names."""


def draw(study: Study) -> Drawn:
    """All charts of a Study."""
    tables = make_tables(study)
    # Altair would check every part against Vega-Lite's schema, which takes most of the time; the tests do.
    with debug_mode(False):
        return drawn_of(draw_all(study, tables), tables.records)


def drawn_of(figures: tuple[Figure, ...], tables: Mapping[str, list[Record]]) -> Drawn:
    """The figures with their specs, and those of `tables` that they name."""
    specs = {figure.key: _spec(figure) for figure in figures if figure.chart is not None}
    used = {name for spec in specs.values() for name in data_names(spec)}
    return Drawn(figures, specs, {name: records for name, records in tables.items() if name in used})


def _spec(figure: Figure) -> dict[str, Any]:
    assert figure.chart is not None
    spec: dict[str, Any] = figure.chart.to_dict(validate=False)
    spec.pop("config", None)
    return spec | {"autosize": {"type": "fit-x", "contains": "padding"}}


def data_names(spec: dict[str, Any]) -> set[str]:
    """Names of the tables that a spec draws, without those that it holds itself."""
    own: dict[str, Any] = spec.get("datasets", {})
    return {name for name in _named(spec) if name not in own}


def _named(part: Any) -> Iterator[str]:
    """Every name under `data`, as often as it stands there."""
    if isinstance(part, dict):
        data = part.get("data")
        if isinstance(data, dict) and "name" in data:
            yield data["name"]
        for value in part.values():
            yield from _named(value)
    elif isinstance(part, list):
        for value in part:
            yield from _named(value)


def without_legends(spec: Any) -> Any:
    """The spec for the page, which writes legends of its own: they wrap, and their text can be selected."""
    if isinstance(spec, dict):
        return {key: None if key == "legend" else without_legends(value) for key, value in spec.items()}
    return [without_legends(value) for value in spec] if isinstance(spec, list) else spec


def as_columns(records: Sequence[Record]) -> dict[str, list[Any]]:
    """A table with each key once. All records have the same keys."""
    return {key: [record[key] for record in records] for key in records[0]} if records else {}


def write_pictures(drawn: Drawn, folder: Path) -> list[Path]:
    """Write a PNG of every chart; returns their paths. Raises OSError."""
    written = []
    for figure in drawn.figures:
        if figure.key in drawn.specs:
            written.append(folder / f"{figure.key}.png")
            write_atomically(written[-1], picture(figure, drawn))
    return written


def picture(figure: Figure, drawn: Drawn) -> bytes:
    """The PNG of one chart: black on white, with its title."""
    import vl_convert

    from meshwright.report.bundle import vega_lite_version

    spec = drawn.specs[figure.key]
    whole = spec | {
        "width": PICTURE_WIDTH,
        "background": "white",
        "padding": 16,
        "title": {"text": figure.title, "subtitle": list(figure.notes), "offset": 12},
        "datasets": spec.get("datasets", {}) | {name: drawn.records[name] for name in data_names(spec)},
    }
    text = json.dumps(whole).replace(f'"{INK}"', '"#222222"').replace(f'"{PAPER}"', '"white"')
    config = json.dumps(CONFIG | {"background": "white"}).replace(f'"{INK}"', '"#222222"')
    png: bytes = vl_convert.vegalite_to_png(
        text, vl_version=vega_lite_version(), scale=PICTURE_SCALE, config=json.loads(config)
    )
    return png
