"""Pipelines: how busy each rank is, and the schedule as it ran."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import altair as alt

from meshwright.report.charts.common import (
    COLOURS,
    GREY,
    NUMBER,
    PAPER,
    SHARE,
    Figure,
    coloured,
    in_order,
    named,
    tip,
)
from meshwright.report.tables import Record, Tables

NO_PIPELINE = "no measured layout is a pipeline with a traced step"
BAR, GAP, NAME = 12, 10, 18
"""Pixels of a rank's bar, between layouts, and of a layout's name."""
LANE = 34
"""Pixels of a rank in the schedule."""
KIND_COLOURS = {"forward": COLOURS[0], "backward": COLOURS[1], "input": COLOURS[1], "weight": COLOURS[2]}


def stages(tables: Tables) -> Figure:
    """The busy and the idle share of every pipeline rank, with the formula's as a mark."""
    key, title = "stages", "Pipeline ranks, busy and idle"
    records = tables.records["stages"]
    if not records:
        return Figure(key, title, missing=NO_PIPELINE)
    height = _place(records)
    y = alt.Y("top:Q", scale=alt.Scale(domain=[0, height], reverse=True, nice=False, zero=False), axis=None)
    y2, base = alt.Y2("bottom"), alt.Chart(named("stages"))
    shown: dict[str, Any] = {
        "tooltip": [
            tip("name:N", "layout"),
            tip("rank:Q", "rank"),
            tip("stages:N", "stages"),
            tip("busy:Q", "busy", SHARE),
            tip("formula:Q", "busy by the formula", SHARE),
        ]
    }
    share = alt.Axis(title="share of the step", format=".0%", tickCount=5)
    x = alt.X("busy:Q", scale=alt.Scale(domain=[0, 1]), axis=share)
    chart = alt.layer(
        base.mark_bar(color=GREY, opacity=0.35).encode(y=y, y2=y2, x=alt.XDatum(0), x2=alt.X2Datum(1), **shown),
        base.mark_bar(color=COLOURS[0]).encode(y=y, y2=y2, x=x, x2=alt.X2Datum(0), **shown),
        base.mark_rule(strokeWidth=2).encode(y=y, y2=y2, x=alt.X("formula:Q")),
        base.transform_filter("datum.first").mark_text(
            align="left", baseline="bottom", dy=-3, limit=alt.ExprRef("width"), clip=True
        ).encode(y=y, x=alt.value(0), text=alt.Text("name:N")),
    )  # fmt: skip
    caption = (
        "A bar a rank, the first stage on top: blue is busy, grey idle, from its first to its last action. "
        "The upright line is what the schedule's formula says."
    )
    return Figure(key, title, caption, chart.properties(width="container", height=height))


def _place(records: list[Record]) -> int:
    """Write where each bar lies into the records, in pixels from the top; returns the height of all."""
    down = 0
    for _, group in groupby(records, key=lambda record: record["name"]):
        down += NAME
        for index, record in enumerate(group):
            record |= {"top": down + 1, "bottom": down + BAR, "first": index == 0}
            down += BAR
        down += GAP
    return down


def gantt(tables: Tables) -> Figure:
    """The pipeline's schedule of one layout at a time."""
    key, title = "schedule", "Pipeline schedule"
    records = tables.records["gantt"]
    if not records:
        return Figure(key, title, missing=NO_PIPELINE)
    names, kinds = in_order(records, "name"), in_order(records, "kind")
    free: Iterator[str] = iter([*COLOURS[3:]] * len(kinds))
    colours = [KIND_COLOURS.get(kind) or next(free) for kind in kinds]
    choice = alt.param(
        name="shown",
        value=names[0],
        bind=alt.binding_select(options=names, name="Layout ") if len(names) > 1 else alt.Undefined,
    )
    base = (
        alt.Chart(named("gantt"))
        .transform_filter("datum.name === shown")
        .transform_calculate(lane="'rank ' + datum.rank")
    )
    rank = alt.Y(
        "lane:N", title=None, sort=alt.EncodingSortField("rank", op="min"), axis=alt.Axis(domain=False, ticks=False)
    )
    bars = base.mark_bar(stroke=PAPER, strokeWidth=0.5, cornerRadius=1).encode(
        y=rank,
        x=alt.X("start:Q", title=f"since the step's begin, {tables.time.name}", axis=alt.Axis(tickCount=6)),
        x2=alt.X2("end"),
        color=coloured("kind:N", kinds, colours),
        opacity=alt.Opacity("stage:O", scale=alt.Scale(range=_stage_opacities(records)), legend=None),
        tooltip=_bar_tip(tables.time.name),
    )
    numbers = base.transform_calculate(middle="(datum.start + datum.end) / 2").mark_text(
        color="white", fontSize=10, opacity=alt.ExprRef("1")
    ).encode(
        y=rank, x=alt.X("middle:Q"), text=alt.Text("batch:Q"), tooltip=_bar_tip(tables.time.name),
        opacity=alt.condition("datum.share * width > 14", alt.value(1), alt.value(0)),
    )  # fmt: skip
    chart = alt.layer(bars, numbers).add_params(choice).properties(width="container", height=alt.Step(LANE))
    caption = (
        "The last traced step: a lane a rank, a bar an action, the number its micro-batch. Of ranks with several "
        "stages the later ones are paler. Gaps are the bubble."
    )
    return Figure(key, title, caption, chart, legend=tuple(zip(kinds, colours, strict=True)), wide=True)


def _stage_opacities(records: list[Record]) -> list[float]:
    """Opacity by stage: full for a rank's first one."""
    stages_of: dict[int, set[int]] = {}
    for record in records:
        stages_of.setdefault(record["rank"], set()).add(record["stage"])
    turn: dict[int, int] = {}
    for owned in stages_of.values():
        for index, stage in enumerate(sorted(owned)):
            turn[stage] = max(turn.get(stage, 0), index)
    return [max(0.45, 1 - 0.3 * turn[stage]) for stage in sorted(turn)]


def _bar_tip(unit: str) -> list[Any]:
    return [
        tip("kind:N", "action"),
        tip("batch:Q", "micro-batch"),
        tip("stage:Q", "stage"),
        tip("rank:Q", "rank"),
        tip("start:Q", f"start, {unit}", NUMBER),
        tip("end:Q", f"end, {unit}", NUMBER),
    ]
