"""Step: the seconds of one optimizer step, part by part, for one layout or for columns of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost.compute import Rates, rates
from meshwright.cost.data_parallel import EVERY_MICRO_BATCH, Flow, gather_flows, step_flows, tied_flows
from meshwright.cost.layer import Exchange, layer_exchanges, layer_seconds
from meshwright.cost.layer_time import LAYER_AXES, LayerTime, exposed_seconds, gather_seconds, layer_time
from meshwright.cost.offload import offload_seconds
from meshwright.cost.pipeline import Passes, pipeline_seconds
from meshwright.cost.rank_layers import RankLayers, learned_layers, rank_layers
from meshwright.cost.rank_time import Edges, RankTime, activation_send_seconds, edge_passes, plus, rank_time
from meshwright.cost.servers import server_seconds
from meshwright.cost.shares import (
    FIRST,
    LAST,
    ORDINARY,
    RankParameters,
    RankShare,
    kept_gradients,
    rank_share,
    sharded,
)
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.model import Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import StateBytes, Workload


@dataclass(frozen=True, slots=True)
class Gathers:
    """ZeRO-3's collectives of one micro-batch: of a layer, of the embedding and of the head."""

    layer: list[Flow]
    embedding: list[Flow]
    head: list[Flow]


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step and what they are made of; numbers or columns."""

    total: Number
    parts: Mapping[str, Number]
    """Add up to `total`."""
    ranks: RankTime
    micro_batches: Number
    layers: RankLayers
    learned: RankLayers
    """Of `layers`, those with a backward."""
    held: RankParameters
    """Parameters on one device of the first pipeline rank, before data ranks shard them."""
    exchanges: tuple[Exchange, ...]
    """Collectives of a layer and micro-batch on the tensor, context and expert axes."""
    gathers: Gathers
    """Data-parallel collectives of a micro-batch (ZeRO-3)."""
    step_flows: tuple[Flow, ...]
    """Data-parallel collectives of a step, or a worker's push and pull."""
    busy: Number
    """Of `total`, from the first forward to the last backward."""
    window: Passes
    """Compute seconds of an average layer, forward and backward, that traffic could run beside."""
    lent: float = 0.0
    """`Efficiency.lent` of the device."""

    @property
    def rank(self) -> Passes:
        """One micro-batch on an ordinary pipeline rank."""
        return self.ranks.middle

    @property
    def first(self) -> Passes:
        """What the first stage costs on top."""
        return self.ranks.first

    @property
    def last(self) -> Passes:
        """What the last stage costs on top."""
        return self.ranks.last

    @property
    def send(self) -> Number:
        """Seconds of one activation sent to the next stage."""
        return self.ranks.send

    @property
    def exposed(self) -> Mapping[str, Number]:
        """Seconds of communication that nothing hides, by axis."""
        axes = ("data", *LAYER_AXES, "pipeline")
        return {axis: self.parts[f"{axis} communication"] for axis in axes} | {"servers": self.parts["servers"]}


def micro_batch_count(workload: Workload, layout: LayoutColumns) -> Number:
    """Micro-batches a data-parallel rank runs in a step."""
    return workload.global_batch / (layout.data * layout.micro_batch)


def step_time(
    model: Model, cluster: Cluster, workload: Workload, layout: LayoutColumns, implementation: Implementation
) -> StepTime:
    """Seconds of one step. Legality is not looked at: `spec.rules` does that."""
    r = rates(cluster.device, workload, implementation)
    states = state_bytes(workload, model)
    layers = rank_layers(model, layout, implementation.balanced_by_cost)
    learns = learned_layers(model, layout, implementation.balanced_by_cost, workload.tuning, layers)
    positions = (FIRST, ORDINARY, LAST)
    shares = [rank_share(model, layout, workload.tuning, layers, learns, position) for position in positions]
    learned = _most(layout, [share.learned for share in shares])
    m = micro_batch_count(workload, layout)

    exchanges = layer_exchanges(model, workload, layout, cluster, r, implementation)
    gathers = _gathers(model, layout, cluster, states, shares)
    compute = layer_seconds(model, workload, layout, r)
    layer = layer_time(model, workload, layout, implementation, compute, exchanges, gathers.layer)
    edges = _gathered_edges(edge_passes(model, workload, layout, r), gathers, layer, workload, implementation)
    accumulation = _accumulation_seconds(learned, layout, r, implementation)
    send = activation_send_seconds(model, workload, layout, cluster)
    host = implementation.micro_batch_seconds
    ranks = rank_time(layout, layer.passes, edges, layers, learns, host, accumulation, send)
    parts, busy = _pipeline_parts(layout, layer, layers, learns, m, ranks, cluster.device.efficiency.lent)

    window = (ranks.middle.input_gradient + ranks.middle.weight_gradient) * implementation.overlap
    whole = step_flows(learned, states, layout, cluster, m, implementation)
    whole += tied_flows(model, workload.tuning, states, layout, cluster)
    reduced = _reduction_seconds(whole, window * float(workload.overlap), m, implementation)
    served, pushes = server_seconds(learned, states, layout, cluster, busy)
    own = np.where(np.asarray(layout.servers) > 0, 0.0, 1.0)
    parts["data communication"] = parts["data communication"] + reduced * own
    parts["servers"] = served + 0.0 * busy
    parts["optimizer"] = own * _optimizer_seconds(learned, states.total, layout, r, implementation)
    parts["offload"] = offload_seconds(
        learned, _most(layout, [share.held for share in shares]), states, layout, cluster, m
    )
    parts["fixed"] = implementation.step_seconds + 0.0 * busy
    after = ("servers", "optimizer", "offload", "fixed")
    total = busy + reduced * own + sum(parts[name] for name in after)
    sent = tuple(flow.times(own) for flow in whole) + pushes
    return StepTime(
        total, parts, ranks, m, layers, learns, shares[0].held, tuple(exchanges), gathers, sent, busy, layer.compute,
        cluster.device.efficiency.lent,
    )  # fmt: skip


def _gathers(
    model: Model, layout: LayoutColumns, cluster: Cluster, states: StateBytes, shares: list[RankShare]
) -> Gathers:
    first, ordinary, last = shares
    each = np.maximum(ordinary.layers, 1)
    held, learned = ordinary.held.total / each, ordinary.learned.total / np.maximum(ordinary.learned_layers, 1)

    def outside(share: RankShare) -> list[Flow]:
        edges = RankParameters(share.edges, 0.0 * share.held.expert)
        return gather_flows(edges, states, layout, cluster, share.learned_edges / np.maximum(share.edges, 1.0))

    layer = RankParameters(ordinary.held.dense / each, ordinary.held.expert / each)
    head = np.where(np.asarray(layout.pipeline) > 1, 1.0, 0.0)
    return Gathers(
        gather_flows(layer, states, layout, cluster, learned / np.maximum(held, 1.0)),
        outside(first),
        [flow.times(head) for flow in outside(last)],
    )


def _gathered_edges(
    edges: Edges, gathers: Gathers, layer: LayerTime, workload: Workload, implementation: Implementation
) -> Edges:
    """Embedding and head with the gathers that a layer's compute does not hide; one rank gathers both as one."""
    share = implementation.overlap * float(workload.overlap)
    ahead, back = layer.passes.forward * share, (layer.passes.total - layer.passes.forward) * share

    def exposed(flows: list[Flow]) -> Passes:
        forward, backward = gather_seconds(flows)
        return Passes(
            exposed_seconds(forward, ahead, implementation), exposed_seconds(backward, back, implementation), 0.0
        )

    return Edges(
        plus(edges.embedding, exposed(gathers.embedding)),
        plus(edges.head, exposed(gathers.head)),
    )


def _most(layout: LayoutColumns, shares: list[RankParameters]) -> RankParameters:
    """The fullest rank's parameters of each kind; an ordinary rank is there from three ranks on."""
    there = np.asarray(layout.pipeline) > 2
    first, ordinary, last = shares
    return RankParameters(
        np.maximum(np.maximum(first.dense, last.dense), np.where(there, ordinary.dense, 0.0)),
        np.maximum(np.maximum(first.expert, last.expert), np.where(there, ordinary.expert, 0.0)),
    )


def _accumulation_seconds(
    learned: RankParameters, layout: LayoutColumns, r: Rates, implementation: Implementation
) -> Number:
    """Seconds a micro-batch in which a sharded optimizer adds gradients to its own, a shard's from stage 2 on."""
    buffered = np.where(np.asarray(layout.zero_stage) > 0, implementation.accumulation_bytes, 0.0)
    return kept_gradients(learned, layout) * buffered / r.raw_memory


def _pipeline_parts(
    layout: LayoutColumns,
    layer: LayerTime,
    layers: RankLayers,
    learned: RankLayers,
    m: Number,
    ranks: RankTime,
    lent: float,
) -> tuple[dict[str, Number], Number]:
    """An ordinary rank's seconds by part, the slowest edge, and their sum: from the first forward to the last backward.

    What the makespan has beyond the rank's own work is the bubble, and what sends add to it is their communication.
    """
    shape = (layout.schedule, layout.pipeline, m, layout.virtual_stages, ranks.middle)
    work = m * (ranks.middle.total + ranks.edge)
    busy = np.maximum(pipeline_seconds(*shape, ranks.send, ranks.first, ranks.last), work)
    unsent = np.maximum(pipeline_seconds(*shape, 0.0, ranks.first, ranks.last), work)
    parts = {name: m * layers.middle * seconds for name, seconds in layer.forward.items()}
    for name, seconds in layer.backward.items():
        parts[name] = parts.get(name, 0.0) + m * learned.middle * seconds
    parts["head and embedding"] = m * ranks.edge
    parts["launch"] = parts["launch"] + m * ranks.fixed
    parts["bubble"] = unsent - work
    parts["pipeline communication"] = busy - unsent
    if lent:
        shared = with_lent(busy, ranks, m, layout.pipeline, lent)
        parts["bubble"], busy = parts["bubble"] + shared - busy, shared
    return parts, busy


def with_lent(makespan: Number, ranks: RankTime, m: Number, pipeline: Number, lent: float) -> Number:
    """Seconds of a pipeline whose waiting ranks lend a share of their time to the others of their node.

    At best (`lent` 1) every rank's work is done as if it were spread evenly: the mean over ranks.
    """
    mean = m * (ranks.middle.total + (ranks.first.total + ranks.last.total) / pipeline)
    return np.where(np.asarray(pipeline) > 1, makespan - lent * np.maximum(makespan - mean, 0.0), makespan)


def _reduction_seconds(flows: list[Flow], window: Number, m: Number, implementation: Implementation) -> Number:
    """Exposed seconds of the reductions: behind the last backward, or in every micro-batch behind its own."""
    once: Number = 0.0
    repeated: Number = 0.0
    for flow in flows:
        if flow.when == EVERY_MICRO_BATCH:
            repeated = repeated + flow.count * flow.seconds
        else:
            once = once + flow.count * flow.seconds
    return exposed_seconds(once, window, implementation) + exposed_seconds(repeated, window * m, implementation)


def _optimizer_seconds(
    learned: RankParameters, state_total: float, layout: LayoutColumns, r: Rates, implementation: Implementation
) -> Number:
    """Every state read and written once, on the shard of the `learned` parameters that this rank updates."""
    moved = 2 * state_total * sharded(learned, layout, 1)
    return moved * implementation.optimizer_traffic / r.raw_memory * (1.0 - np.asarray(layout.offload_optimizer))
