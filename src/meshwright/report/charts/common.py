"""What the charts share: colours, the axis of layouts, numbers in tooltips, and the look of text and grid.

Text and grid are drawn in `currentColor`: the page decides, light or dark, without drawing anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

INK, PAPER = "currentColor", "Canvas"
"""Words that a browser turns into the page's colours; a PNG gets black and white."""
COLOURS = (
    "#4c78a8", "#e07b39", "#54a24b", "#d64550", "#8f6bb8", "#2f9c95", "#c9a227", "#d4679f", "#8c6d51", "#7f8891",
)  # fmt: skip
"""Mid-tones that stand out from white and from nearly black."""
GREY = "#9aa0a6"
FEW = len(COLOURS)
"""Series that a legend can tell apart."""
PITCH, INNER = 36, 0.55
"""Pixels a layout takes in a bar chart, and the share of them above its bar: there its name stands."""
NUMBER, SHARE = ",.4~r", ".1%"

NARROW = 325
"""Pixels that a chart has on the narrowest page."""
MANY_POINTS = 30
"""Points from which only the notable ones have numbers."""
LABEL_LIMIT: Any = alt.ExprRef("max(120, width - 30)")
"""Pixels of a legend's label."""

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "titleFontWeight": "normal", "titleFontSize": 12, "labelFontSize": 11,
        "gridColor": INK, "gridOpacity": 0.14, "domainColor": INK, "domainOpacity": 0.4, "tickColor": INK,
        "tickOpacity": 0.4, "labelOverlap": "greedy",
    },
    "legend": {
        "labelColor": INK, "titleColor": INK, "titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 11,
        "orient": "top", "direction": "horizontal", "labelLimit": 320, "symbolStrokeWidth": 3,
    },
    "text": {"color": INK, "fontSize": 11},
    "rule": {"color": INK},
    "tick": {"color": INK},
    "title": {"color": INK, "subtitleColor": INK, "anchor": "start", "fontWeight": 600, "fontSize": 15},
}  # fmt: skip
"""Vega-Lite's `config` of every chart."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart of the report, or why there is none."""

    key: str
    title: str
    caption: str = ""
    """What it shows and how to read it: plain text."""
    chart: Any = None
    """Altair's."""
    missing: str = ""
    """Why it is left out; then there is no chart."""
    notes: tuple[str, ...] = field(default=())
    """Lines under the chart."""
    wide: bool = False
    """Takes the page's whole width."""


def named(table: str) -> Any:
    """A table of the page, by name."""
    return alt.NamedData(name=table)


def layouts_axis(names: Sequence[str]) -> alt.Y:
    """The bands of a bar chart from top to bottom, each name on a line above its bars, so that long ones have room."""
    half_band = PITCH * (1 - INNER) / 2
    axis = alt.Axis(
        title=None, orient="left", labelAlign="left", labelBaseline="bottom", labelPadding=0,
        labelOffset=-half_band - 3, labelLimit=alt.ExprRef("width"), labelOverlap=False,
        ticks=False, domain=False, grid=False,
    )  # fmt: skip
    return alt.Y(
        "name:N", scale=alt.Scale(domain=list(names), paddingInner=INNER, paddingOuter=INNER), sort=None, axis=axis
    )


def bands_height(count: int) -> int:
    """Pixels of so many bands. (Vega-Lite's own step would do the same, with a warning in the console.)"""
    return round(PITCH * (count + INNER))


def amount_axis(field_name: str, title: str, many: bool, **more: Any) -> alt.X:
    """The axis of bar lengths; on top where the chart is long."""
    axis = alt.Axis(title=title, orient="top" if many else "bottom", tickCount=5, **more)
    return alt.X(field_name, axis=axis, stack="zero")


def part_colours(parts: Sequence[str], fixed: dict[str, str]) -> alt.Color:
    """A colour for every part: the fixed one, or the next that none has."""
    free = [colour for colour in COLOURS if colour not in fixed.values()] or list(COLOURS)
    unknown = [part for part in parts if part not in fixed]
    colours = fixed | {part: free[index % len(free)] for index, part in enumerate(unknown)}
    return alt.Color(
        "part:N",
        scale=alt.Scale(domain=list(parts), range=[colours[part] for part in parts]),
        legend=legend_of(parts),
    )


def legend_of(names: Sequence[str]) -> alt.Legend:
    """A legend in one line where even a narrow page has room for it, else in as many columns as there is room for."""
    sizes = [30 + 6.2 * len(name) for name in names]
    if sum(sizes) <= NARROW:
        return alt.Legend(title=None, symbolOpacity=1)
    columns = alt.ExprRef(f"max(1, floor(width / {max(sizes):.0f}))")
    return alt.Legend(title=None, columns=columns, labelLimit=LABEL_LIMIT, symbolOpacity=1)


def place_numbers(points: alt.Chart, count: int) -> alt.Chart:
    """The places by step time beside points: odd ones above to the right, even ones below to the left.

    Of many points only those on the front and the baseline have one; the tooltip has all.
    """
    if count > MANY_POINTS:
        points = points.transform_filter("datum.front || datum.baseline")
    odd = "datum.place % 2"
    chart: alt.Chart = points.mark_text(
        align=alt.ExprRef(f"{odd} ? 'left' : 'right'"), baseline=alt.ExprRef(f"{odd} ? 'bottom' : 'top'"),
        dx=alt.ExprRef(f"{odd} ? 6 : -6"), dy=alt.ExprRef(f"{odd} ? -3 : 3"),
    ).encode(text="place:Q")  # fmt: skip
    return chart


def tip(field_name: str, title: str, form: str | None = None) -> alt.Tooltip:
    """One line of a tooltip."""
    return alt.Tooltip(field_name, title=title, format=form) if form else alt.Tooltip(field_name, title=title)


def in_order(records: Sequence[dict[str, Any]], key: str) -> list[Any]:
    """The values of a column, each once, as they are first met."""
    return list(dict.fromkeys(record[key] for record in records))
