"""Curves over the steps, one above the other: loss, its difference to the baseline's, gradient norm."""

from __future__ import annotations

import altair as alt

from meshwright.report.charts.common import FEW, Figure, coloured, cycled, in_order, named, tip
from meshwright.report.tables import Record, Tables

HEIGHT = 280
_AXES = {"difference": alt.Axis(labelExpr="datum.value == 0 ? '0' : format(datum.value, '.2~e')")}
HOW_TO_PICK = "Pick a layout in the list to bring its curve out."


def loss(tables: Tables) -> Figure:
    """Loss over the steps."""
    return _curve(tables, "loss", "Loss", "loss", "Layouts that train the same lie on one another.", ".5f")


def difference(tables: Tables) -> Figure:
    """Relative difference to the reference's loss."""
    about = "Relative to one process's loss, or the baseline's without one. Rounding differs, training must not."
    return _curve(tables, "difference", "Loss beside the reference's", "relative difference", about, ".2e")


def norm(tables: Tables) -> Figure:
    """Gradient norm over the steps."""
    return _curve(tables, "norm", "Gradient norm", "gradient norm", "Of all parameters, before clipping.", ".5f")


def _curve(tables: Tables, field: str, title: str, axis: str, about: str, form: str) -> Figure:
    """Lines of one column of the curves."""
    key = {"difference": "loss-difference", "norm": "gradient-norm"}.get(field, field)
    records = [record for record in tables.records["curves"] if record[field] is not None]
    if not records:
        return Figure(key, title, missing=f"no row has a {axis} of its steps")
    names = in_order(records, "name")
    last = max(record["step"] for record in records)
    steps = alt.Scale(domain=[1, max(2, last)], nice=False)
    pick = alt.param(name="picked", value="", bind=_choices(names))
    base = alt.Chart(named("curves")).transform_filter(f"isValid(datum.{field})")
    lines = base.mark_line(clip=True).encode(
        x=alt.X("step:Q", title="step", scale=steps, axis=alt.Axis(tickMinStep=1, format="d")),
        y=alt.Y(f"{field}:Q", title=axis, scale=_scale(records, field), axis=_AXES.get(field, alt.Axis(format="~g"))),
        color=_colour(names),
        opacity=alt.condition("picked === '' || picked === datum.name", alt.value(0.85), alt.value(0.12)),
        strokeWidth=alt.condition("picked === datum.name", alt.value(3), alt.value(1.5)),
        tooltip=[tip("name:N", "layout")],
    )
    points = base.transform_filter("picked === datum.name").mark_point(size=30, filled=True, opacity=1).encode(
        x=alt.X("step:Q"),
        y=alt.Y(f"{field}:Q"),
        color=alt.Color("name:N"),
        tooltip=[tip("name:N", "layout"), tip("step:Q", "step"), tip(f"{field}:Q", axis, form)],
    )  # fmt: skip
    chart = alt.layer(lines, points).add_params(pick).properties(width="container", height=HEIGHT)
    legend = tuple(zip(names, cycled(len(names)), strict=True)) if len(names) <= FEW else ()
    return Figure(key, title, f"{about} {HOW_TO_PICK}", chart, legend=legend)


def _choices(names: list[str]) -> alt.BindInputSelect:
    select: alt.BindInputSelect = alt.binding_select(options=["", *names], labels=["all", *names], name="Layout ")
    return select


def _colour(names: list[str]) -> alt.Color:
    """A colour a layout, with a legend where it can tell them apart."""
    colour = coloured("name:N", names, cycled(len(names)))
    few: alt.Color = colour if len(names) <= FEW else colour.legend(None)
    return few


def _scale(records: list[Record], field: str) -> alt.Scale:
    """From the least to the greatest value, but no further than ten times the middle half: a run may diverge."""
    values = sorted(record[field] for record in records)
    low, high = values[len(values) // 4], values[(3 * len(values)) // 4]
    room = 10 * (high - low)
    least, most = (max(values[0], low - room), min(values[-1], high + room)) if room else (values[0], values[-1])
    margin = 0.05 * (most - least) or abs(most) * 0.05 or 1e-9
    return alt.Scale(domain=[least - margin, most + margin], nice=False)
