"""Estimate: one layout's memory and time, part by part, with what was assumed."""

from __future__ import annotations

from meshwright.cost.flops import FORMULA, model_flops, recomputed_flops
from meshwright.cost.memory import INSTANTS, Peak, peak_memory
from meshwright.cost.parameters import parameters
from meshwright.cost.result import Estimate, Memory
from meshwright.cost.servers import JITTER
from meshwright.cost.step import StepTime, step_time
from meshwright.cost.traffic import traffic
from meshwright.cost.verdict import verdict
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import columns_of
from meshwright.spec.implementation import Implementation, load_implementation
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.rules import check_layout
from meshwright.spec.workload import Workload


def estimate(model: Model, cluster: Cluster, workload: Workload, layout: Layout, *, spare: bool = False) -> Estimate:
    """What the formulas say of one layout. Raises LayoutError where no runtime could run it.

    `spare` allows a layout that leaves devices of the cluster idle.
    """
    notes = check_layout(model, cluster, workload, layout, spare=spare)
    software = load_implementation(workload.implementation)
    columns = columns_of(layout)
    step = step_time(model, cluster, workload, columns, software)
    peak = peak_memory(model, cluster, workload, columns, software)
    return compose(model, cluster, workload, layout, step, peak, float(step.total), notes)


def compose(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    layout: Layout,
    step: StepTime,
    peak: Peak,
    step_seconds: float,
    notes: tuple[str, ...] = (),
) -> Estimate:
    """An Estimate from priced columns of one row; `step_seconds` may come from the event simulation instead."""
    columns = columns_of(layout)
    time = {name: float(seconds) for name, seconds in step.parts.items()}
    time["bubble"] += step_seconds - float(step.total)
    part = parameters(model)
    flops = model_flops(model, workload)
    hardware = flops + recomputed_flops(model, workload, layout)
    precision = workload.precision
    available = cluster.device.peak_flops[precision] * layout.devices * step_seconds
    return Estimate(
        model=model,
        cluster=cluster,
        workload=workload,
        layout=layout,
        step_seconds=step_seconds,
        time=time,
        memory=_memory(cluster, layout, peak),
        traffic=traffic(model, workload, columns, step),
        parameters=part.total,
        active_parameters=part.active,
        parameters_per_device=float(step.held.total),
        state_bytes_per_parameter=state_bytes(workload, model).total,
        model_flops=flops,
        hardware_flops=hardware,
        mfu=flops / available,
        hfu=hardware / available,
        bubble=time["bubble"] / step_seconds,
        tokens_per_second_per_device=workload.tokens / step_seconds / layout.devices,
        assumptions=assumptions(model, cluster, workload, layout),
        warnings=model.warnings + cluster.warnings + notes,
    )


def _memory(cluster: Cluster, layout: Layout, peak: Peak) -> Memory:
    position, instant = int(peak.stage), INSTANTS[int(peak.instant)]
    rank = peak.ranks[position]
    parts = {name: float(value) for name, value in rank.at(instant).items() if float(value) > 0}
    return Memory(
        peak_bytes=float(peak.bytes),
        parts=parts,
        peak_instant=instant,
        instants={name: sum(float(v) for v in rank.at(name).values()) for name in INSTANTS},
        stage=position % layout.pipeline,
        reserved_bytes=float(peak.reserved),
        capacity_bytes=cluster.device.memory_bytes,
        verdict=verdict(float(peak.reserved), cluster.device.memory_bytes, float(peak.host), cluster.host_memory_bytes),
        host_bytes=float(peak.host),
    )


def assumptions(model: Model, cluster: Cluster, workload: Workload, layout: Layout) -> tuple[str, ...]:
    """Every approximation that no other level has confirmed, a line each."""
    software: Implementation = load_implementation(workload.implementation)
    states = state_bytes(workload, model)
    reached = cluster.device.efficiency
    lines = [
        f"states {workload.states}: {states.parameter:g} bytes of parameter + {states.gradient:g} of gradient "
        f"+ {states.main_gradient:g} of main gradient + {states.master:g} of master copy + {states.moments:.3g} of "
        f"moments; gradients travel in {states.reduce:g} bytes",
        f"software class {software.name}: {software.layer_seconds * 1e3:.2f} ms of launches a layer's forward, "
        f"{software.overlap * float(workload.overlap):.0%} of backward can hide data-parallel traffic",
        f"{reached.reserved_bytes / 2**30:.1f} GiB for context and communication buffers, "
        f"{reached.fragmentation:.0%} fragmentation on top of the tensors",
        "attention is fused" if workload.fused_attention else "attention scores go through memory",
        "dropout masks are kept" if workload.dropout else "no dropout",
        f"MFU counts {FORMULA}, against {cluster.device.peak_flops[workload.precision] / 1e12:g} TFLOP/s",
    ]
    if model.experts is not None:
        lines.append("tokens are balanced over the experts")
    if layout.servers:
        lines.append(f"servers have links like a device's share of the network; a worker's step varies by {JITTER:.0%}")
    if layout.pipeline > 1 and not layout.stage_layers and model.layers % layout.stages:
        lines.append(
            "layers do not divide into stages: the rank of the head, then that of the embedding, gets one less"
        )
    return tuple(lines)
