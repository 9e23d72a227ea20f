"""Traffic: what each axis sends in a step, how much of it shows, and the bandwidth that would hide it."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.cost.layer import Exchange
from meshwright.cost.operations import sizes
from meshwright.cost.rank_time import activation_bytes
from meshwright.cost.result import Traffic
from meshwright.cost.step import StepTime
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload


def traffic(model: Model, workload: Workload, layout: LayoutColumns, step: StepTime) -> tuple[Traffic, ...]:
    """Collectives by axis and kind in one step, for a device of the busiest pipeline rank.

    Axes' exposed seconds are shared out over their collectives by duration.
    """
    rows: list[tuple[str, str, float, float, float]] = []
    m, layers = float(step.micro_batches), float(step.layers.middle)
    full = 1.0 if int(layout.recompute) == 2 else 0.0
    for x in step.exchanges:
        count = float(x.forward + x.backward + full * x.replayed) * layers * m
        rows.append((x.axis, x.collective, count, count * float(x.sent), count * float(x.seconds)))
    for flow in step.layer_flows:
        count = float(flow.count) * layers * m
        rows.append(("data", flow.collective, count, count * float(flow.sent), count * float(flow.seconds)))
    for flow in step.step_flows:
        count = float(flow.count)
        rows.append(("data", flow.collective, count, count * float(flow.sent), count * float(flow.seconds)))
    if int(layout.pipeline) > 1:
        size = float(activation_bytes(model, sizes(workload, layout)))
        count = 2.0 * m * float(layout.virtual_stages)
        rows.append(("pipeline", "send/recv", count, count * size, count * float(step.send)))
    return _priced([row for row in _merged(rows) if row[2] > 0 and row[3] > 0], step)


def _merged(rows: list[tuple[str, str, float, float, float]]) -> list[tuple[str, str, float, float, float]]:
    """One row an axis and collective."""
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    for axis, collective, count, sent, seconds in rows:
        a, b, c = found.get((axis, collective), (0.0, 0.0, 0.0))
        found[axis, collective] = (a + count, b + sent, c + seconds)
    return [(axis, collective, *totals) for (axis, collective), totals in found.items()]


def _priced(rows: list[tuple[str, str, float, float, float]], step: StepTime) -> tuple[Traffic, ...]:
    by_axis: dict[str, float] = {}
    for axis, _, _, _, seconds in rows:
        by_axis[axis] = by_axis.get(axis, 0.0) + seconds
    windows = _windows(step)
    return tuple(
        Traffic(
            axis=axis,
            collective=collective,
            count=count,
            bytes=sent,
            seconds=seconds,
            exposed_seconds=float(step.exposed[axis]) * seconds / by_axis[axis] if by_axis[axis] else 0.0,
            bandwidth_to_hide=sent / windows[axis] if windows.get(axis) else 0.0,
        )
        for axis, collective, count, sent, seconds in rows
    )


def _windows(step: StepTime) -> Mapping[str, float]:
    """Seconds of compute in a step that an axis' traffic could run beside."""
    m = float(step.micro_batches)
    per_micro_batch = float(step.rank.total)
    gathers = any(float(flow.count) > 0 for flow in step.layer_flows)
    ring = [x for x in step.exchanges if x.axis == "context"]
    return {
        "data": m * per_micro_batch if gathers else float(step.rank.input_gradient + step.rank.weight_gradient),
        "tensor": m * per_micro_batch,
        "context": _hidden(ring) * m * float(step.layers.middle) or m * per_micro_batch,
        "expert": m * per_micro_batch,
        "pipeline": m * per_micro_batch,
    }


def _hidden(exchanges: list[Exchange]) -> float:
    return sum(float((x.forward + x.backward) * x.hidden_behind) for x in exchanges)
