"""Throughput over ranks, and over the micro-batch, where rows differ in nothing else."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import altair as alt

from meshwright.report.charts.common import Figure, coloured, cycled, in_order, tip
from meshwright.report.study import Entry, Study, printable, usable
from meshwright.report.tables import Record

HEIGHT = 280
DEGREES = re.compile(r"(?<![\w:])(ddp|zero[123]:|fsdp|hsdp|ps|tp|cp|ep|pp|hpz)\d+(?:x\d+)?")
"""The degrees in a layout's notation."""
MICRO_BATCH = re.compile(r"(?<![\w:])mbs(\d+)")


def scaling(study: Study) -> Figure:
    """Tokens/s over ranks of rows whose layouts differ in degrees only."""
    key, title = "scaling", "Scaling over ranks"
    records = _series(study, lambda entry: DEGREES.sub(lambda match: match[1].rstrip(":"), entry.row.layout), _ranks)
    if not records:
        return Figure(key, title, missing="no two measured layouts are the same but for the number of their ranks")
    for record in records:
        first = next(one for one in records if one["series"] == record["series"])
        record["ideal"] = first["tokens"] * record["x"] / first["x"]
        record["efficiency"] = record["tokens"] / record["ideal"]
    lines = _lines(records, "ranks", [tip("efficiency:Q", "of ideal", ".0%")])
    ideal = _base(records).mark_line(strokeDash=[4, 4], opacity=0.5).encode(y=alt.Y("ideal:Q"))
    about = "Dashed: as much more throughput as ranks. The same global batch, so each rank's part of it shrinks."
    chart = (ideal + lines).properties(width="container", height=HEIGHT)
    return Figure(key, title, about, chart, legend=_legend(records))


def micro_batches(study: Study) -> Figure:
    """Tokens/s over the micro-batch of rows that differ in nothing else."""
    key, title = "micro-batch", "Throughput over the micro-batch"
    records = _series(study, lambda entry: " ".join(MICRO_BATCH.sub("", entry.row.layout).split()), _micro_batch)
    if not records:
        return Figure(key, title, missing="no two measured layouts are the same but for their micro-batch")
    chart = _lines(records, "sequences in a micro-batch", [])
    about = "Larger micro-batches use the device better, and take more memory."
    return Figure(key, title, about, chart.properties(width="container", height=HEIGHT), legend=_legend(records))


def _ranks(entry: Entry) -> int | None:
    return entry.row.ranks if entry.row.ranks > 0 else None


def _micro_batch(entry: Entry) -> int:
    found = MICRO_BATCH.search(entry.row.layout)
    return int(found[1]) if found else 1  # what a layout without the token has


def _series(study: Study, family: Callable[[Entry], str], x: Callable[[Entry], int | None]) -> list[Record]:
    """A record an entry of each family that has more than one `x`, sorted; of two at one `x` the faster one.

    Runs that are not comparable have families of their own.
    """
    families: dict[str, dict[int, Entry]] = defaultdict(dict)
    for entry in reversed(study.measured):
        at = x(entry)
        if at is not None and usable(entry.row.tokens_per_second):
            families[printable((f"{entry.run}: " if study.differences else "") + family(entry))][at] = entry
    return [
        {"series": name, "x": at, "tokens": points[at].row.tokens_per_second, "name": points[at].name}
        for name, points in sorted(families.items())
        if len(points) > 1
        for at in sorted(points)
    ]


def _legend(records: Sequence[Record]) -> tuple[tuple[str, str], ...]:
    series = in_order(records, "series")
    return tuple(zip(series, cycled(len(series)), strict=True))


def _base(records: Sequence[Record]) -> alt.Chart:
    series = in_order(records, "series")
    ticks = sorted({record["x"] for record in records})
    chart: alt.Chart = alt.Chart(alt.InlineData(values=list(records))).encode(
        x=alt.X("x:Q", scale=alt.Scale(zero=False, padding=12), axis=alt.Axis(values=ticks, format="d", grid=False)),
        color=coloured("series:N", series, cycled(len(series))),
    )
    return chart


def _lines(records: Sequence[Record], title: str, more: list[alt.Tooltip]) -> alt.Chart:
    chart: alt.Chart = (
        _base(records)
        .mark_line(point=alt.OverlayMarkDef(filled=True, size=60), strokeWidth=2)
        .encode(
            x=alt.X(
                "x:Q",
                title=title,
                scale=alt.Scale(zero=False, padding=12),
                axis=alt.Axis(values=sorted({r["x"] for r in records}), format="d", grid=False),
            ),
            y=alt.Y("tokens:Q", title="tokens/s", axis=alt.Axis(format=",.0f")),
            tooltip=[tip("name:N", "layout"), tip("x:Q", title), tip("tokens:Q", "tokens/s", ",.0f"), *more],
        )
    )
    return chart
