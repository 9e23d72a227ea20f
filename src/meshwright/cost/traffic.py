"""Traffic: what each axis sends in a step, how much of it shows, and the bandwidth that would hide it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.cost.data_parallel import EVERY_MICRO_BATCH
from meshwright.cost.operations import sizes
from meshwright.cost.rank_time import activation_bytes
from meshwright.cost.result import Traffic
from meshwright.cost.step import StepTime
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class _Row:
    axis: str
    collective: str
    count: float
    bytes: float
    seconds: float


def traffic(model: Model, workload: Workload, layout: LayoutColumns, step: StepTime) -> tuple[Traffic, ...]:
    """Collectives by axis and kind in one step, for a device of an ordinary pipeline rank and of the edges.

    Axes' exposed seconds are shared out over their collectives by duration.
    """
    rows: list[_Row] = []

    def add(axis: str, collective: str, count: float, sent: Number, seconds: Number) -> None:
        if count > 0 and float(sent) > 0:
            rows.append(_Row(axis, collective, count, count * float(sent), count * float(seconds)))

    m, layers, learned = float(step.micro_batches), float(step.layers.middle), float(step.learned.middle)
    full = 1.0 if int(layout.recompute) == 2 else 0.0
    for x in step.exchanges:
        count = (float(x.forward) * layers + float(x.backward + full * x.replayed) * learned) * m
        add(x.axis, x.collective, count, x.sent, x.seconds)
    for flow in step.gathers.layer:
        times = layers if flow.when == "forward" else learned
        add("data", flow.collective, float(flow.count) * times * m, flow.sent, flow.seconds)
    for flow in (*step.gathers.embedding, *step.gathers.head):
        add("data", flow.collective, float(flow.count) * m, flow.sent, flow.seconds)
    data = "servers" if int(layout.servers) > 0 else "data"
    for flow in step.step_flows:
        add(data, flow.collective, float(flow.count), flow.sent, flow.seconds)
    if int(layout.pipeline) > 1:
        size = activation_bytes(model, sizes(workload, layout))
        add("pipeline", "send/recv", 2.0 * m * float(layout.virtual_stages), size, step.send)
    return _priced(_merged(rows), step)


def _merged(rows: list[_Row]) -> list[_Row]:
    """One row an axis and collective."""
    found: dict[tuple[str, str], _Row] = {}
    for row in rows:
        key = row.axis, row.collective
        old = found.get(key, _Row(*key, 0.0, 0.0, 0.0))
        found[key] = _Row(*key, old.count + row.count, old.bytes + row.bytes, old.seconds + row.seconds)
    return list(found.values())


def _priced(rows: list[_Row], step: StepTime) -> tuple[Traffic, ...]:
    windows = _windows(step)
    seconds = {row.axis: sum(r.seconds for r in rows if r.axis == row.axis) for row in rows}
    sent = {row.axis: sum(r.bytes for r in rows if r.axis == row.axis) for row in rows}
    return tuple(
        Traffic(
            axis=row.axis,
            collective=row.collective,
            count=row.count,
            bytes=row.bytes,
            seconds=row.seconds,
            exposed_seconds=float(step.exposed[row.axis]) * row.seconds / seconds[row.axis] if row.seconds else 0.0,
            bandwidth_to_hide=sent[row.axis] / windows[row.axis] if windows[row.axis] else 0.0,
        )
        for row in rows
    )


def _windows(step: StepTime) -> Mapping[str, float]:
    """Seconds of compute in a step that an axis' traffic could run beside.

    Everything for what happens in every layer; for gradients that are reduced once, the last micro-batch's backward.
    """
    m, layers, learned = float(step.micro_batches), float(step.layers.middle), float(step.learned.middle)
    forward = layers * float(step.window.forward)
    backward = learned * float(step.window.input_gradient + step.window.weight_gradient)
    often = any(float(flow.count) > 0 for flow in step.gathers.layer)
    repeated = any(float(flow.count) > 0 and flow.when == EVERY_MICRO_BATCH for flow in step.step_flows)
    data = m * (forward + backward) if often else m * backward if repeated else backward
    ring = sum(float((x.forward + x.backward) * x.hidden_behind) for x in step.exchanges if x.axis == "context")
    whole = m * (forward + backward)
    return {
        "data": data,
        "servers": whole,
        "tensor": whole,
        "context": ring * m * layers or whole,
        "expert": whole,
        "pipeline": whole,
    }
