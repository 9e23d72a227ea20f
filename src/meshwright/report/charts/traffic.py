"""Bytes that a device sends in a step on each axis, measured beside the formula."""

from __future__ import annotations

import altair as alt

from meshwright.report.charts.bars import MANY
from meshwright.report.charts.common import (
    NUMBER,
    Figure,
    amount_axis,
    bands_height,
    coloured,
    cycled,
    in_order,
    layout_names,
    layouts_axis,
    named,
    tip,
)
from meshwright.report.tables import Tables


def traffic(tables: Tables) -> Figure:
    """Two bars a layout: measured, and under it, paler, what the formulas say."""
    key, title = "traffic", "Traffic by axis"
    records = tables.records["traffic"]
    if not records:
        return Figure(key, title, missing="no row sent anything, or no row counted it")
    names, axes = in_order(records, "name"), in_order(records, "axis")
    unit, colours = tables.traffic.name, cycled(len(axes))
    bars = (
        alt.Chart(named("traffic"))
        .mark_bar()
        .encode(
            y=layouts_axis(names),
            yOffset=alt.YOffset("of:N", scale=alt.Scale(domain=["measured", "formula"])),
            x=amount_axis("value:Q", f"sent in a step, {unit}", len(names) > MANY),
            color=coloured("axis:N", axes, colours),
            opacity=alt.Opacity(
                "of:O",
                scale=alt.Scale(domain=["measured", "formula"], range=[1.0, 0.45]),
                legend=None,
            ),
            tooltip=[
                tip("name:N", "layout"),
                tip("axis:N", "axis"),
                tip("collective:N", "collective"),
                tip("of:N", "value"),
                tip("value:Q", unit, NUMBER),
                tip("count:Q", "calls a step", NUMBER),
            ],
        )
    )
    chart = (bars + layout_names(names)).properties(width="container", height=bands_height(len(names)))
    caption = (
        "Bytes that the rank which sends most sends in a step. The upper bar is measured; the lower, paler one is what "
        "the formulas say."
    )
    return Figure(key, title, caption, chart, legend=tuple(zip(axes, colours, strict=True)))
