"""Step: the seconds of one optimizer step, part by part, for one layout or for columns of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost import operations as ops
from meshwright.cost.collectives import groups, send_seconds
from meshwright.cost.compute import BlockSeconds, Rates, block_seconds, rates, smooth_max
from meshwright.cost.data_parallel import Flow, gather_flows, step_flows
from meshwright.cost.layer import Exchange, layer_exchanges, layer_seconds
from meshwright.cost.offload import offload_seconds
from meshwright.cost.pipeline import Passes, pipeline_seconds
from meshwright.cost.shares import (
    RankLayers,
    RankParameters,
    balanced_layers,
    edge_share,
    layer_share,
    learning_share,
)
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.model import Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step and what they are made of; numbers or columns."""

    total: Number
    parts: Mapping[str, Number]
    """Add up to `total`."""
    rank: Passes
    """One micro-batch on an ordinary pipeline rank."""
    first: Passes
    last: Passes
    """What the first and last stage cost on top."""
    send: Number
    """Seconds of one activation sent to the next stage."""
    micro_batches: Number
    layers: RankLayers
    exchanges: tuple[Exchange, ...]
    layer_flows: tuple[Flow, ...]
    step_flows: tuple[Flow, ...]
    exposed: Mapping[str, Number]
    """Exposed seconds of communication by axis."""
    held: RankParameters
    """Parameters on one device of the first pipeline rank, before data ranks shard them."""
    window: Number
    """Backward seconds behind which the step's gradient traffic can hide."""


def micro_batch_count(workload: Workload, layout: LayoutColumns) -> Number:
    """Micro-batches a data-parallel rank runs in a step."""
    return workload.global_batch / (layout.data * layout.micro_batch)


@dataclass(frozen=True, slots=True)
class LayerTime:
    """An average layer's seconds for one micro-batch, and the parts it consists of."""

    passes: Passes
    parts: Mapping[str, Number]


def step_time(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    layout: LayoutColumns,
    implementation: Implementation,
    layers: RankLayers | None = None,
) -> StepTime:
    """Seconds of one step. Legality is not looked at: `spec.rules` does that."""
    r = rates(cluster.device, workload, implementation)
    states = state_bytes(workload, model)
    learning = learning_share(model, workload.tuning)
    share = layer_share(model, layout)
    count = layers or balanced_layers(model, layout, implementation.balanced_by_cost)
    m = micro_batch_count(workload, layout)

    exchanges = layer_exchanges(model, workload, layout, cluster, r, implementation)
    flows = gather_flows(share, states, layout, cluster, learning)
    compute = layer_seconds(model, workload, layout, r)
    layer = _layer_time(compute, exchanges, flows, workload, layout, implementation, model.moe_layers / model.layers)

    embedding = _edge(ops.embedding_block(model, workload, ops.sizes(workload, layout)), r)
    head = _edge(ops.head_block(model, workload, ops.sizes(workload, layout)), r)
    fixed = implementation.micro_batch_seconds
    accumulation = share.total * count.middle * learning * implementation.accumulation_bytes / r.raw_memory
    rank = _times(layer.passes, count.middle)
    rank = Passes(rank.forward + fixed, rank.input_gradient + fixed, rank.weight_gradient + accumulation)
    first = _plus(embedding, _times(layer.passes, count.first - count.middle))
    last = _plus(head, _times(layer.passes, count.last - count.middle))
    send = _send_seconds(model, workload, layout, cluster)
    shape = (layout.schedule, layout.pipeline, m, layout.virtual_stages, rank)
    busy = pipeline_seconds(*shape, send, first, last)
    unsent = pipeline_seconds(*shape, 0.0, first, last)

    edge_first, edge_last = edge_share(model, layout)
    held = RankParameters(
        share.dense * count.first + edge_first + np.where(np.asarray(layout.pipeline) > 1, 0.0, edge_last),
        share.expert * count.first,
    )
    whole = step_flows(held, states, layout, cluster, learning, m, implementation)
    window = (rank.input_gradient + rank.weight_gradient) * implementation.overlap * float(workload.overlap)
    data = _data_seconds(whole, window, implementation)
    optimizer = _optimizer_seconds(held, states.total, layout, r, learning, implementation)
    offload = offload_seconds(held, states, layout, cluster)

    alone = np.asarray(layout.pipeline) == 1
    edge = np.where(alone, embedding.total + head.total, np.maximum(np.maximum(first.total, last.total), 0.0))
    parts = _parts(layer, count, m, unsent, edge, 2 * fixed + accumulation)
    parts["pipeline communication"] = busy - unsent
    parts["data communication"] = parts.get("data communication", 0.0) + data
    parts["optimizer"] = optimizer
    parts["offload"] = offload
    parts["fixed"] = implementation.step_seconds + 0.0 * optimizer
    total = busy + data + optimizer + offload + implementation.step_seconds
    exposed = {
        "data": parts["data communication"],
        "tensor": parts["tensor communication"],
        "context": parts["context communication"],
        "expert": parts["expert communication"],
        "pipeline": parts["pipeline communication"],
    }
    return StepTime(
        total=total,
        parts=parts,
        rank=rank,
        first=first,
        last=last,
        send=send,
        micro_batches=m,
        layers=count,
        exchanges=tuple(exchanges),
        layer_flows=tuple(flows),
        step_flows=tuple(whole),
        exposed=exposed,
        held=held,
        window=window,
    )


def _edge(operations: list[ops.Operation], r: Rates) -> Passes:
    return block_seconds(operations, r).passes


def _times(passes: Passes, factor: Number) -> Passes:
    return Passes(passes.forward * factor, passes.input_gradient * factor, passes.weight_gradient * factor)


def _plus(a: Passes, b: Passes) -> Passes:
    return Passes(
        a.forward + b.forward,
        a.input_gradient + b.input_gradient,
        a.weight_gradient + b.weight_gradient,
    )


def _backward_share(workload: Workload, layers: int) -> tuple[float, float]:
    """Share of input gradients and of weight gradients that are computed at all."""
    tuning = workload.tuning
    if tuning.kind == "lora":
        return 1.0, 0.0
    if tuning.kind == "frozen":
        rest = (layers - tuning.frozen_layers) / layers
        return rest, rest
    return 1.0, 1.0


def _layer_time(
    compute: BlockSeconds,
    exchanges: list[Exchange],
    flows: list[Flow],
    workload: Workload,
    layout: LayoutColumns,
    implementation: Implementation,
    moe_share: float,
) -> LayerTime:
    """Compute, replay, exposed collectives and the launch floor of an average layer."""
    full = np.where(np.asarray(layout.recompute) == 2, 1.0, 0.0)
    some = np.where(np.asarray(layout.recompute) == 1, 1.0, 0.0)
    ahead: dict[str, Number] = {}
    back: dict[str, Number] = {}
    again: dict[str, Number] = {}
    for x in exchanges:
        each = np.maximum(x.seconds - x.hidden_behind, 0.0)
        ahead[x.axis] = ahead.get(x.axis, 0.0) + x.forward * each
        back[x.axis] = back.get(x.axis, 0.0) + x.backward * each
        again[x.axis] = again.get(x.axis, 0.0) + x.replayed * each * full
    replay = full * compute.passes.forward + some * compute.replay
    inputs, weights = compute.passes.input_gradient, compute.passes.weight_gradient

    forward = compute.passes.forward + sum(ahead.values())
    backward = inputs + weights + replay + sum(back.values()) + sum(again.values())
    many = 1.0 + implementation.tensor_parallel_launches * ((layout.tensor - 1) / 7) ** 2
    mixtures = 1.0 + moe_share * (implementation.mixture_launches - 1.0)
    launch = implementation.layer_seconds * many * mixtures
    launched_forward = smooth_max(forward, launch)
    launched_backward = smooth_max(backward, launch * (implementation.backward_launches + full))

    gather, scatter = _gather_seconds(flows)
    share = implementation.overlap * float(workload.overlap)
    exposed_forward = _exposed(gather[0], launched_forward * share, implementation)
    exposed_backward = _exposed(gather[1] + scatter, launched_backward * share, implementation)
    total_backward = launched_backward + exposed_backward
    by_weight = weights / np.maximum(inputs + weights, 1e-30)
    passes = Passes(
        launched_forward + exposed_forward,
        total_backward * (1 - by_weight),
        total_backward * by_weight,
    )
    parts = {
        "forward": compute.passes.forward,
        "backward": inputs + weights,
        "recompute": replay,
        "launch": launched_forward - forward + launched_backward - backward,
        "data communication": exposed_forward + exposed_backward,
    }
    for axis in ("tensor", "context", "expert"):
        parts[f"{axis} communication"] = ahead.get(axis, 0.0) + back.get(axis, 0.0) + again.get(axis, 0.0)
    return LayerTime(passes, parts)


def _gather_seconds(flows: list[Flow]) -> tuple[tuple[Number, Number], Number]:
    gathers = {"forward": 0.0, "backward": 0.0}
    scatter: Number = 0.0
    for flow in flows:
        if flow.collective == "all-gather":
            gathers[flow.when] = gathers[flow.when] + flow.count * flow.seconds
        else:
            scatter = scatter + flow.count * flow.seconds
    return (gathers["forward"], gathers["backward"]), scatter


def _exposed(traffic: Number, window: Number, implementation: Implementation) -> Number:
    """What traffic adds to compute that it runs beside: the part that does not fit, and the slow-down it causes."""
    hidden = np.minimum(traffic, window)
    return traffic - hidden + implementation.overlap_slowdown * hidden


def _data_seconds(flows: list[Flow], window: Number, implementation: Implementation) -> Number:
    traffic: Number = 0.0
    for flow in flows:
        traffic = traffic + flow.count * flow.seconds
    return _exposed(traffic, window, implementation)


def _send_seconds(model: Model, workload: Workload, layout: LayoutColumns, cluster: Cluster) -> Number:
    z = ops.sizes(workload, layout)
    size = z.element * z.tokens / z.tensor * model.hidden
    return send_seconds(size, groups(layout)["pipeline"], cluster)


def _optimizer_seconds(
    held: RankParameters,
    state_total: float,
    layout: LayoutColumns,
    r: Rates,
    learning: float,
    implementation: Implementation,
) -> Number:
    """Every state read and written once, on the shard that this rank updates."""
    shards = np.where(np.asarray(layout.zero_stage) > 0, layout.shard * layout.context, 1)
    moved = 2 * state_total * held.total * learning / shards
    on_device = 1.0 - np.asarray(layout.offload_optimizer)
    return moved * implementation.optimizer_traffic / r.raw_memory * on_device


def _parts(
    layer: LayerTime, count: RankLayers, m: Number, busy: Number, edge: Number, fixed: Number
) -> dict[str, Number]:
    """The busiest rank's seconds by part; what the pipeline's makespan has beyond them is the bubble.

    `fixed` is what each micro-batch costs beside its layers: host work and adding up gradients.
    """
    parts = {name: m * count.middle * seconds for name, seconds in layer.parts.items()}
    parts["head and embedding"] = m * edge
    parts["launch"] = parts["launch"] + m * fixed
    parts["bubble"] = busy - m * (count.middle * layer.passes.total + edge + fixed)
    return parts
