"""Predicted step time against the measured one."""

from __future__ import annotations

import altair as alt

from meshwright.report.charts.common import COLOURS, NUMBER, Figure, named, place_numbers, tip
from meshwright.report.tables import Tables

HEIGHT = 340
BAND = 0.2
"""Share of the measured time around the diagonal that is shaded: the error that a plan may have."""


def predicted(tables: Tables) -> Figure:
    """A point a layout; on the diagonal the prediction is right."""
    key, title = "predicted", "Predicted against measured"
    rows = [row for row in tables.records["rows"] if row["predicted"]]
    if not rows:
        return Figure(key, title, missing="no measured row has a prediction")
    values = [row[what] for row in rows for what in ("step", "predicted")]
    low, high = min(values) * 0.85, max(values) * 1.1
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    ends = [{"x": x, "y": x, "under": x * (1 - BAND), "over": x * (1 + BAND)} for x in (low, high)]
    unit = tables.time.name
    x, y = alt.X("x:Q", scale=scale, title=f"measured step, {unit}"), alt.Y("y:Q", scale=scale)
    line = alt.Chart(alt.InlineData(values=ends))
    points = alt.Chart(named("rows")).transform_filter("isValid(datum.predicted)").encode(
        x=alt.X("step:Q", scale=scale),
        y=alt.Y("predicted:Q", scale=scale, title=f"predicted step, {unit}"),
        tooltip=[
            tip("name:N", "layout"),
            tip("step:Q", f"measured, {unit}", NUMBER),
            tip("predicted:Q", f"predicted, {unit}", NUMBER),
            tip("error:Q", "error", "+.1%"),
        ],
    )  # fmt: skip
    chart = alt.layer(
        line.mark_area(clip=True, color=COLOURS[0], opacity=0.1).encode(
            x=x, y=alt.Y("under:Q", scale=scale), y2=alt.Y2("over")
        ),
        line.mark_line(clip=True, color=COLOURS[0], opacity=0.6, strokeDash=[4, 4]).encode(x=x, y=y),
        points.mark_point(filled=True, size=90, opacity=0.9, color=COLOURS[1]),
        place_numbers(points, len(rows)),
    )
    about = (
        f"On the dashed line the prediction is right; the band is {BAND:.0%} to either side. Above the line a layout "
        "was faster than predicted. Numbers are places by step time."
    )
    return Figure(key, title, about, chart.properties(width="container", height=HEIGHT))
