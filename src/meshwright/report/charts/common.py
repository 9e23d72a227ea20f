"""What the charts share: colours, the axis of layouts, numbers in tooltips, and the look of text and grid.

Text and grid are drawn in `currentColor`: the page decides, light or dark, without drawing anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

PICTURE_WIDTH = 720
"""Pixels of a PNG's chart."""
MANY_POINTS = 30
"""Points from which only the notable ones have numbers."""
CONFIG: dict[str, Any] = {
    "background": "transparent",
    # The drawing as a whole has a label; one for each of its thousands of marks would take longer than drawing them.
    "aria": False,
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
    legend: tuple[tuple[str, str], ...] = ()
    """Names and colours."""
    notes: tuple[str, ...] = ()
    """Lines under the chart."""
    wide: bool = False
    """Takes the page's whole width."""


def named(table: str) -> Any:
    """A table of the page, by name."""
    return alt.NamedData(name=table)


def layouts_axis(names: Sequence[str]) -> alt.Y:
    """The bands of a bar chart from top to bottom; `layout_names` writes the names above the bars."""
    scale = alt.Scale(domain=list(names), paddingInner=INNER, paddingOuter=INNER)
    return alt.Y("name:N", scale=scale, sort=None, axis=None)


def layout_names(names: Sequence[str]) -> alt.Chart:
    """Each layout's name on a line above its bars, so that long ones have room. (Labels of an axis would widen it.)"""
    half_band = PITCH * (1 - INNER) / 2
    chart: alt.Chart = (
        alt.Chart(named("rows"))
        .transform_filter(alt.FieldOneOfPredicate(field="name", oneOf=list(names)))
        .mark_text(align="left", baseline="bottom", dy=-half_band - 3, limit=alt.ExprRef("width"), clip=True)
        .encode(y=layouts_axis(names), x=alt.value(0), text=alt.Text("name:N"))
    )
    return chart


def bands_height(count: int) -> int:
    """Pixels of so many bands. (Vega-Lite's own step would do the same, with a warning in the console.)"""
    return round(PITCH * (count + INNER))


def amount_axis(field_name: str, title: str, many: bool, **more: Any) -> alt.X:
    """The axis of bar lengths; on top where the chart is long."""
    axis = alt.Axis(title=title, orient="top" if many else "bottom", tickCount=5, **more)
    return alt.X(field_name, axis=axis, stack="zero")


def part_colours(parts: Sequence[str], fixed: dict[str, str]) -> list[str]:
    """A colour for every part: the fixed one, or the next that none has."""
    free = [colour for colour in COLOURS if colour not in fixed.values()] or list(COLOURS)
    unknown = [part for part in parts if part not in fixed]
    colours = fixed | {part: free[index % len(free)] for index, part in enumerate(unknown)}
    return [colours[part] for part in parts]


def coloured(field_name: str, names: Sequence[str], colours: Sequence[str]) -> alt.Color:
    """Colours by name, with a legend that only pictures show: the page writes its own, which wraps on a narrow one."""
    columns = max(1, int(PICTURE_WIDTH // max((36 + 6.5 * len(name) for name in names), default=1)))
    legend = alt.Legend(title=None, columns=columns, labelLimit=PICTURE_WIDTH, symbolOpacity=1)
    return alt.Color(field_name, scale=alt.Scale(domain=list(names), range=list(colours)), legend=legend)


def cycled(count: int) -> list[str]:
    """As many colours, which repeat after FEW."""
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


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
    ).encode(text=alt.Text("place:Q"))  # fmt: skip
    return chart


def tip(field_name: str, title: str, form: str | None = None) -> alt.Tooltip:
    """One line of a tooltip."""
    return alt.Tooltip(field_name, title=title, format=form) if form else alt.Tooltip(field_name, title=title)


def in_order(records: Sequence[dict[str, Any]], key: str) -> list[Any]:
    """The values of a column, each once, as they are first met."""
    return list(dict.fromkeys(record[key] for record in records))
