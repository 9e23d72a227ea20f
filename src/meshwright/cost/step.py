"""Step: the seconds of one optimizer step, part by part, for one layout or for columns of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost.compute import Rates, rates
from meshwright.cost.data_parallel import Flow, gather_flows, step_flows
from meshwright.cost.layer import Exchange, layer_exchanges, layer_seconds
from meshwright.cost.layer_time import LAYER_AXES, LayerTime, exposed_seconds, layer_time
from meshwright.cost.offload import offload_seconds
from meshwright.cost.pipeline import Passes, pipeline_seconds
from meshwright.cost.rank_time import RankTime, rank_time
from meshwright.cost.servers import server_seconds
from meshwright.cost.shares import (
    RankLayers,
    RankParameters,
    balanced_layers,
    first_rank_share,
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
    ranks: RankTime
    micro_batches: Number
    layers: RankLayers
    held: RankParameters
    """Parameters on one device of the first pipeline rank, before data ranks shard them."""
    exchanges: tuple[Exchange, ...]
    """Collectives of a layer and micro-batch on the tensor, context and expert axes."""
    layer_flows: tuple[Flow, ...]
    """Data-parallel collectives of a layer and micro-batch (ZeRO-3)."""
    step_flows: tuple[Flow, ...]
    """Data-parallel collectives of a step, or a worker's push and pull."""

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
        return {axis: self.parts[f"{axis} communication"] for axis in axes}


def micro_batch_count(workload: Workload, layout: LayoutColumns) -> Number:
    """Micro-batches a data-parallel rank runs in a step."""
    return workload.global_batch / (layout.data * layout.micro_batch)


def step_time(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    layout: LayoutColumns,
    implementation: Implementation,
    layers: RankLayers | None = None,
) -> StepTime:
    """Seconds of one step. Legality is not looked at: `spec.rules` does that.

    `layers` says how many layers each pipeline rank has; without it they are balanced as the software does.
    """
    r = rates(cluster.device, workload, implementation)
    states = state_bytes(workload, model)
    learning = learning_share(model, workload.tuning)
    count = layers or balanced_layers(model, layout, implementation.balanced_by_cost)
    held = first_rank_share(model, layout, count)
    m = micro_batch_count(workload, layout)

    exchanges = layer_exchanges(model, workload, layout, cluster, r, implementation)
    gathers = gather_flows(held.divided(np.maximum(count.first, 1)), states, layout, cluster, learning)
    compute = layer_seconds(model, workload, layout, r)
    layer = layer_time(model, workload, layout, implementation, compute, exchanges, gathers)
    buffered = np.where(np.asarray(layout.zero_stage) > 0, implementation.accumulation_bytes, 0.0)
    accumulation = held.total * learning * buffered / r.raw_memory
    host = implementation.micro_batch_seconds
    ranks = rank_time(model, workload, layout, cluster, layer.passes, count, host, accumulation, r)
    parts, busy = _pipeline_parts(layout, layer, count, m, ranks)

    window = (ranks.middle.input_gradient + ranks.middle.weight_gradient) * implementation.overlap
    whole = step_flows(held, states, layout, cluster, learning, m, implementation)
    reduced = _reduction_seconds(whole, window * float(workload.overlap), implementation)
    served, pushes = server_seconds(held, states, layout, cluster, busy, learning)
    own = np.where(np.asarray(layout.servers) > 0, 0.0, 1.0)
    parts["data communication"] = parts["data communication"] + reduced * own + served
    parts["optimizer"] = own * _optimizer_seconds(held.total * learning, states.total, layout, r, implementation)
    parts["offload"] = offload_seconds(held.total * learning, held.total, states, layout, cluster)
    parts["fixed"] = implementation.step_seconds + 0.0 * busy
    total = busy + reduced * own + served + parts["optimizer"] + parts["offload"] + parts["fixed"]
    sent = tuple(flow.times(own) for flow in whole) + pushes
    return StepTime(total, parts, ranks, m, count, held, tuple(exchanges), tuple(gathers), sent)


def _pipeline_parts(
    layout: LayoutColumns, layer: LayerTime, count: RankLayers, m: Number, ranks: RankTime
) -> tuple[dict[str, Number], Number]:
    """The busiest rank's seconds by part, and their sum: from the first forward to the last backward.

    What the makespan has beyond the rank's own work is the bubble, and what sends add to it is their communication.
    """
    shape = (layout.schedule, layout.pipeline, m, layout.virtual_stages, ranks.middle)
    busy = pipeline_seconds(*shape, ranks.send, ranks.first, ranks.last)
    unsent = pipeline_seconds(*shape, 0.0, ranks.first, ranks.last)
    parts = {name: m * count.middle * seconds for name, seconds in layer.parts.items()}
    parts["head and embedding"] = m * ranks.edge
    parts["launch"] = parts["launch"] + m * ranks.fixed
    parts["bubble"] = unsent - m * (count.middle * layer.passes.total + ranks.edge + ranks.fixed)
    parts["pipeline communication"] = busy - unsent
    return parts, busy


def _reduction_seconds(flows: list[Flow], window: Number, implementation: Implementation) -> Number:
    traffic: Number = 0.0
    for flow in flows:
        traffic = traffic + flow.count * flow.seconds
    return exposed_seconds(traffic, window, implementation)


def _optimizer_seconds(
    learned: Number, state_total: float, layout: LayoutColumns, r: Rates, implementation: Implementation
) -> Number:
    """Every state read and written once, on the shard of the `learned` parameters that this rank updates."""
    shards = np.where(np.asarray(layout.zero_stage) > 0, layout.shard * layout.context, 1)
    moved = 2 * state_total * learned / shards
    return moved * implementation.optimizer_traffic / r.raw_memory * (1.0 - np.asarray(layout.offload_optimizer))
