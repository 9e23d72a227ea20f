"""Bars of one layout below the other: step time, memory, and what the devices do, each in its parts."""

from __future__ import annotations

from typing import Any

import altair as alt

from meshwright.report.charts.common import (
    GREY,
    INK,
    NUMBER,
    PAPER,
    SHARE,
    Figure,
    amount_axis,
    bands_height,
    coloured,
    in_order,
    layout_names,
    layouts_axis,
    named,
    part_colours,
    tip,
)
from meshwright.report.tables import ACTIVITIES, REST, Tables

MANY = 12
"""Layouts from which the axis stands on top of the chart."""
PHASE_COLOURS = {"forward": "#4c78a8", "backward": "#e07b39", "optimizer": "#54a24b", REST: GREY}
MEMORY_COLOURS = {"parameters": "#4c78a8", "gradients": "#e07b39", "optimizer": "#54a24b", REST: GREY}
ACTIVITY_COLOURS = dict(zip(ACTIVITIES, ("#4c78a8", "#8f6bb8", "#d64550", GREY), strict=True))


def step_time(tables: Tables) -> Figure:
    """Median step time in phases, its spread, and the prediction."""
    figure = Figure(
        "step-time",
        "Step time",
        "Median step of the slowest rank, fastest layout first. The line reaches from the 10th to the 90th percentile; "
        "the diamond is the prediction. Phases come from traced steps, as parts of the median.",
    )
    rows = tables.records["rows"]
    if not rows:
        return _missing(figure, "no layout has been measured")
    names = in_order(rows, "name")
    unit = tables.time.name
    bars = _stack(names, "phases", PHASE_COLOURS, tables, f"step, {unit}", unit)
    spread = (
        alt.Chart(named("rows"))
        .mark_rule(strokeWidth=1.5)
        .encode(y=layouts_axis(names), x=alt.X("low:Q"), x2=alt.X2("high"))
    )
    chart = bars + spread + _predicted("predicted", names, unit)
    return _with(figure, chart, names, _legend(tables, "phases", PHASE_COLOURS))


def memory(tables: Tables) -> Figure:
    """Peak memory of the fullest rank in parts, and the prediction."""
    figure = Figure(
        "memory",
        "Memory",
        "Peak of the fullest rank, in the order of the step times. The diamond is the prediction, which counts all "
        "that a device must have; under the table stands what the measured peak is of.",
    )
    parts = tables.records["memory"]
    if not parts:
        return _missing(figure, "no row has a peak of its memory")
    names = in_order(parts, "name")
    unit = tables.memory.name
    bars = _stack(names, "memory", MEMORY_COLOURS, tables, f"peak memory, {unit}", unit)
    chart = bars + _predicted("predicted_memory", names, unit)
    return _with(figure, chart, names, _legend(tables, "memory", MEMORY_COLOURS))


def activity(tables: Tables) -> Figure:
    """Computing, communicating beside it, communicating alone, idle."""
    figure = Figure(
        "activity",
        "Computing and communicating",
        "Where the time of a traced step goes, mean over ranks. Exposed communication is what no computing hides.",
    )
    parts = tables.records["activity"]
    if not parts:
        return _missing(figure, "no row has a traced step that tells computing from communicating")
    names = in_order(parts, "name")
    bars = _stack(names, "activity", ACTIVITY_COLOURS, tables, f"traced step, {tables.time.name}", tables.time.name)
    return _with(figure, alt.layer(bars), names, _legend(tables, "activity", ACTIVITY_COLOURS))


def _stack(
    names: list[str], table: str, colours: dict[str, str], tables: Tables, title: str, unit: str
) -> alt.Chart | alt.LayerChart:
    """Bars with their parts end to end."""
    parts = _parts(tables, table)
    chart: alt.Chart = (
        alt.Chart(named(table))
        .mark_bar()
        .encode(
            y=layouts_axis(names),
            x=amount_axis("value:Q", title, len(names) > MANY),
            color=coloured("part:N", parts, part_colours(parts, colours)),
            order=alt.Order("order:Q"),
            tooltip=[
                tip("name:N", "layout"),
                tip("part:N", "part"),
                tip("value:Q", unit, NUMBER),
                tip("share:Q", "share", SHARE),
            ],
        )
    )
    return chart


def _parts(tables: Tables, table: str) -> list[str]:
    """Names of the parts in the order in which they are stacked."""
    return in_order(sorted(tables.records[table], key=lambda record: record["order"]), "part")


def _predicted(field: str, names: list[str], unit: str) -> alt.Chart:
    """A diamond at the prediction."""
    chart: alt.Chart = (
        alt.Chart(named("rows"))
        .transform_filter(f"isValid(datum.{field})")
        .transform_filter(alt.FieldOneOfPredicate(field="name", oneOf=names))
        .mark_point(shape="diamond", size=70, filled=True, fill=PAPER, stroke=INK, strokeWidth=1.5, opacity=1)
        .encode(
            y=layouts_axis(names),
            x=alt.X(f"{field}:Q"),
            tooltip=[tip("name:N", "layout"), tip(f"{field}:Q", f"predicted, {unit}", NUMBER)],
        )
    )
    return chart


def _missing(figure: Figure, why: str) -> Figure:
    return Figure(figure.key, figure.title, missing=why)


def _legend(tables: Tables, table: str, colours: dict[str, str]) -> tuple[tuple[str, str], ...]:
    parts = _parts(tables, table)
    return tuple(zip(parts, part_colours(parts, colours), strict=True))


def _with(figure: Figure, chart: Any, names: list[str], legend: tuple[tuple[str, str], ...]) -> Figure:
    sized = (chart + layout_names(names)).properties(width="container", height=bands_height(len(names)))
    return Figure(figure.key, figure.title, figure.caption, sized, legend=legend)
