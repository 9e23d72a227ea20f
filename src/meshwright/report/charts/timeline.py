"""The memory of a rehearsed rank over the step that has its peak, in parts end to end, with the phases below."""

from __future__ import annotations

from typing import Any

import altair as alt

from meshwright.rehearse.result import RankRehearsal, Span, Stack
from meshwright.report.charts.common import COLOURS, INK, NUMBER, PAPER, Figure, coloured, named, tip
from meshwright.report.tables import Record, Unit, size_unit
from meshwright.spec.units import binary

Tables = dict[str, list[Record]]
HEIGHT, GAP, STRIP = 320, 4, 20
"""Pixels of the areas, and below them of the strip of phases."""
NEAR = 0.6
"""The device's memory is drawn where the peak is at least this share of it."""
ROOM = 1.1
"""Height of the axis over the highest thing, whose name stands above it."""
PART_COLOURS = dict(zip(
    (
        "parameters", "gradients", "optimizer", "logits", "activations", "gathered", "communication", "recomputed",
        "temporary", "buffers",
    ),
    COLOURS, strict=True,
))  # fmt: skip
SHADES = {"forward": 0.1, "weight": 0.2, "backward": 0.3, "input": 0.3}
"""How dark a phase is in the strip."""
LETTERS = {"forward": "F", "backward": "B", "input": "I", "weight": "W", "optimizer": "opt"}
CAPTION = (
    "The device's bytes after every allocation and every free, in their order: the width of a phase is their number, "
    "not time. The strip names the phases and their micro-batches: F forward, B backward, I and W a backward in two "
    "halves, of the input and of the weights."
)


def memory_over_step(found: RankRehearsal, capacity_bytes: float, device: str) -> tuple[Figure, Tables]:
    """The chart, and the tables that it names. `found` has its stack."""
    stack = found.stack
    assert stack is not None, "rehearsed with its history"
    near = found.peak_bytes >= NEAR * capacity_bytes
    top = max(found.peak_bytes, capacity_bytes) if near else found.peak_bytes
    unit = size_unit([top])
    tables = memory_tables(found, stack, unit)
    parts = list(stack.parts)
    colours = [PART_COLOURS[part] for part in parts]
    # x: the step's events; the strip takes the place of labels.
    axis = alt.Axis(
        title="allocations and frees, in their order", labels=False, ticks=False, grid=False,
        titlePadding=GAP + STRIP + 8,
    )  # fmt: skip
    x = alt.X("at:Q", scale=alt.Scale(domain=[0, stack.events], nice=False), axis=axis)
    y = alt.Y("bytes:Q", title=unit.name, stack="zero", scale=alt.Scale(domain=[0, top * ROOM * unit.per_base]))
    layers = [_areas(parts, colours, x, y), _pointer(parts, unit.name), *_strip(), *_peak(tables["peak"][0], stack)]
    if near:
        layers += _capacity(capacity_bytes * unit.per_base, f"{device}: {binary(capacity_bytes)}")
    return Figure(
        "memory",
        f"Memory over step {stack.step}",
        CAPTION,
        alt.layer(*layers).properties(width="container", height=HEIGHT),
        legend=tuple(zip(parts, colours, strict=True)),
        notes=(f"Peak: {binary(found.peak_bytes)} at {found.peak}.",),
        wide=True,
    ), tables


def memory_tables(found: RankRehearsal, stack: Stack, unit: Unit) -> Tables:
    """The tables stack (a column a part), spans and peak, in `unit`."""
    rows: list[Record] = []
    for i, (at, where) in enumerate(zip(stack.at, stack.where, strict=True)):
        sizes = {part: column[i] for part, column in stack.parts.items()}
        scaled = {part: _digits(size * unit.per_base) for part, size in sizes.items()}
        rows.append({"at": at, "where": where, "sum": _digits(sum(sizes.values()) * unit.per_base), **scaled})
    rows.append(rows[-1] | {"at": stack.events})  # so that the last one, too, is as wide as it is long
    highest, after = rows[stack.peak], [*stack.at, stack.events][stack.peak + 1]
    middle = (highest["at"] + after) / 2
    peak = {"at": middle, "sum": highest["sum"], "told": f"peak {binary(found.peak_bytes)}"}
    return {"stack": rows, "spans": [_span(span, stack.events) for span in stack.spans], "peak": [peak]}


def _digits(value: float) -> float:
    return float(f"{value:.5g}")


def _span(span: Span, events: int) -> Record:
    number = "" if span.micro_batch is None else f" {span.micro_batch}"
    letter = LETTERS.get(span.phase, span.phase)
    stage = "" if span.stage is None else f", stage {span.stage}"
    return {
        "start": span.start,
        "end": span.end,
        "middle": (span.start + span.end) / 2,
        "share": (span.end - span.start) / events,
        "name": f"{span.phase}{number}",
        "letter": letter + number.strip(),
        "told": f"{span.phase}{number and f' of micro-batch{number}'}{stage}",
        "shade": SHADES.get(span.phase, SHADES["weight"]),
    }


def _areas(parts: list[str], colours: list[str], x: alt.X, y: alt.Y) -> alt.Chart:
    chart: alt.Chart = (
        alt.Chart(named("stack"))
        .transform_fold([*parts], as_=["part", "bytes"])
        .transform_calculate(order=f"indexof({parts}, datum.part)")
        .mark_area(interpolate="step-after", opacity=0.9)
        .encode(x=x, y=y, color=coloured("part:N", parts, colours), order=alt.Order("order:Q"))
    )
    return chart


def _pointer(parts: list[str], unit: str) -> alt.Chart:
    """A line at the moment that is pointed at, and its numbers."""
    nearest = alt.selection_point(name="moment", nearest=True, on="pointerover", fields=["at"], empty=False)
    numbers = [tip(f"{part}:Q", f"{part}, {unit}", NUMBER) for part in reversed(parts)]
    chart: alt.Chart = (
        alt.Chart(named("stack"))
        .mark_rule(strokeWidth=1)
        .encode(
            x=alt.X("at:Q"),
            opacity=alt.condition(nearest, alt.value(0.8), alt.value(0)),
            tooltip=[tip("where:N", "in"), tip("sum:Q", f"all, {unit}", NUMBER), *numbers],
        )
        .add_params(nearest)
    )
    return chart


def _strip() -> list[alt.Chart]:
    """The phases below the areas, with as much of their names as there is room for."""
    base = alt.Chart(named("spans"))
    top, bottom, middle = (alt.value(HEIGHT + GAP + part * STRIP) for part in (0, 1, 0.5))
    bars = base.mark_rect(color=INK, stroke=PAPER, strokeWidth=1).encode(
        x=alt.X("start:Q"), x2=alt.X2("end"), y=top, y2=bottom,
        opacity=alt.Opacity("shade:Q", scale=None, legend=None), tooltip=[tip("told:N", "phase")],
    )  # fmt: skip
    room = "datum.share * width"
    words = base.transform_calculate(
        seen=f"{room} > 7 * length(datum.name) ? datum.name : {room} > 7 * length(datum.letter) ? datum.letter : ''"
    ).mark_text(fontSize=10.5).encode(
        x=alt.X("middle:Q"), y=middle, text=alt.Text("seen:N"),
        tooltip=[tip("told:N", "phase")],
    )  # fmt: skip
    return [bars, words]


def _peak(peak: Record, stack: Stack) -> list[alt.Chart]:
    late = peak["at"] > stack.events / 2
    base = alt.Chart(named("peak"))
    x, y = alt.X("at:Q"), alt.Y("sum:Q")
    return [
        base.mark_point(size=45, filled=True, fill=PAPER, stroke=INK, strokeWidth=1.5, opacity=1).encode(x=x, y=y),
        base.mark_text(
            align="right" if late else "left", baseline="bottom", dx=-6 if late else 6, dy=-5, fontWeight=600
        ).encode(x=x, y=y, text=alt.Text("told:N")),
    ]


def _capacity(size: float, told: str) -> list[Any]:
    """The device's memory as a line with its name above."""
    base = alt.Chart(alt.InlineData([{"sum": size, "told": told}]))
    y = alt.Y("sum:Q")
    return [
        base.mark_rule(strokeWidth=1.5, strokeDash=[6, 4], color=COLOURS[3]).encode(y=y),
        base.mark_text(align="left", baseline="bottom", dy=-3, dx=4).encode(
            y=y, x=alt.value(0), text=alt.Text("told:N")
        ),
    ]
