"""Memory against step time, and the front of the layouts that no other one beats in both."""

from __future__ import annotations

import altair as alt

from meshwright.report.charts.common import COLOURS, GREY, NUMBER, Figure, coloured, named, place_numbers, tip
from meshwright.report.tables import Tables

HEIGHT = 340
KINDS = (("on the front", COLOURS[0]), ("baseline", COLOURS[1]), ("beaten", GREY))


def pareto(tables: Tables) -> Figure:
    """A point a layout with its place by step time, the front as a line of steps."""
    key, title = "pareto", "Memory against step time"
    rows = [row for row in tables.records["rows"] if row["memory"] is not None]
    if not rows:
        return Figure(key, title, missing="no row has both a step time and a peak of its memory")
    front = [f"{row['place']} {row['name']}" for row in rows if row["front"]]
    numbers = place_numbers(_rows().encode(x=_x(), y=_y()), len(rows))
    chart = alt.layer(_steps(tables), _spread(), _points(tables), numbers)
    return Figure(
        key,
        title,
        "Down and to the left is better. On the line lie the layouts that no other one beats in both. "
        "Numbers are places by step time; the table has the names.",
        chart.properties(width="container", height=HEIGHT),
        legend=KINDS,
        notes=(f"On the line: {', '.join(front)}.",),
    )


def _rows() -> alt.Chart:
    chart: alt.Chart = alt.Chart(named("rows")).transform_filter("isValid(datum.memory)")
    return chart


def _x() -> alt.X:
    return alt.X("step:Q", scale=alt.Scale(zero=False, padding=24))


def _y() -> alt.Y:
    return alt.Y("memory:Q", scale=alt.Scale(zero=False, padding=24))


def _steps(tables: Tables) -> alt.Chart:
    chart: alt.Chart = (
        _rows()
        .transform_filter("datum.front")
        .mark_line(interpolate="step-after", color=COLOURS[0], strokeWidth=2, opacity=0.6)
        .encode(
            x=_x().title(f"step, {tables.time.name}"),
            y=_y().title(f"peak memory, {tables.memory.name}"),
            order=alt.Order("step:Q"),
            # Runs that are not comparable have a line each.
            detail=alt.Detail("group:N"),
        )
    )
    return chart


def _spread() -> alt.Chart:
    chart: alt.Chart = _rows().mark_rule(opacity=0.35).encode(x=alt.X("low:Q"), x2=alt.X2("high"), y=_y())
    return chart


def _points(tables: Tables) -> alt.Chart:
    kind = "datum.baseline ? 'baseline' : datum.front ? 'on the front' : 'beaten'"
    chart: alt.Chart = (
        _rows()
        .transform_calculate(kind=kind)
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            x=_x(),
            y=_y(),
            color=coloured("kind:N", [kind for kind, _ in KINDS], [colour for _, colour in KINDS]),
            shape=alt.Shape(
                "kind:N",
                scale=alt.Scale(domain=[kind for kind, _ in KINDS], range=["circle", "square", "circle"]),
            ),
            tooltip=[
                tip("name:N", "layout"),
                tip("place:Q", "place by step time"),
                tip("step:Q", f"step, {tables.time.name}", NUMBER),
                tip("memory:Q", f"memory, {tables.memory.name}", NUMBER),
                tip("tokens:Q", "tokens/s", ",.0f"),
            ],
        )
    )
    return chart
