"""Data parallelism: what DDP, ZeRO, FSDP, HSDP and ZeRO++ send, per layer and per step.

ZeRO stages 1 and 2 move DDP's bytes, stage 3 half as much again (arXiv:1910.02054 section 7); hybrid sharding
keeps the gathers inside a shard group and reduces shards between groups; ZeRO++ (arXiv:2306.10209) quantises
weights to one byte and gradients to half a byte, and gathers for backward inside a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.collectives import (
    Group,
    Tiers,
    all_gather_seconds,
    all_reduce_seconds,
    groups,
    reduce_scatter_seconds,
    tiers,
)
from meshwright.cost.rank_layers import is_v
from meshwright.cost.shares import RankParameters, gradients_whole
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.model import Model
from meshwright.spec.workload import StateBytes, Tuning

EVERY_MICRO_BATCH = "every micro-batch"
"""When ZeRO-2 scatters its gradients outside of a pipeline: it has no room to add them up whole."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Collectives of one kind on the data axis."""

    collective: str
    when: str
    """forward, backward and EVERY_MICRO_BATCH: of every micro-batch; gradients or parameters: once a step."""
    count: Number
    """Collectives a layer (1) or, for a bucketed whole-model reduction, a step."""
    size: Number
    """Bytes of the whole tensor."""
    sent: Number
    """Bytes that one device sends in one of them."""
    seconds: Number

    def times(self, factor: Number) -> Flow:
        """As many of them times `factor`."""
        return replace(self, count=self.count * factor)


def gather_flows(
    share: RankParameters, states: StateBytes, layout: LayoutColumns, cluster: Cluster, learning: Number
) -> list[Flow]:
    """ZeRO-3 and FSDP: one layer's parameters gathered twice and its gradients scattered, every micro-batch.

    `learning` is the share of its parameters that have gradients.
    """
    on = np.where(np.asarray(layout.zero_stage) == 3, 1.0, 0.0)
    wire = np.where(np.asarray(layout.quantized_weights) > 0, 1.0, states.compute)
    grads = np.where(np.asarray(layout.quantized_gradients) > 0, 0.5, states.reduce)
    group = groups(layout)
    secondary = np.asarray(layout.secondary_shard)
    near = Group(np.where(secondary > 0, secondary, group["shard"].size), group["shard"].stride)
    flows = []
    for kind, axis in ((share.dense, "shard"), (share.expert, "expert_shard")):
        if np.all(np.asarray(kind) == 0):
            continue
        whole = group["shard"] if axis == "shard" else _expert_shard(layout, group)
        back = near if axis == "shard" else whole
        there = on * (np.asarray(kind) > 0)
        scattered = there * np.where(gradients_whole(layout), 0.0, 1.0) * (np.asarray(learning) > 0)
        for name, when, times, size, ring in (
            ("all-gather", "forward", there, kind * wire, whole),
            ("all-gather", "backward", there, kind * wire, back),
            ("reduce-scatter", "backward", scattered, kind * grads * learning, whole),
        ):
            t = tiers(ring, cluster)
            price = reduce_scatter_seconds if name == "reduce-scatter" else all_gather_seconds
            flows.append(Flow(name, when, times, size, size * (t.size - 1) / t.size, price(size, t)))
    return flows


def _expert_shard(layout: LayoutColumns, group: dict[str, Group]) -> Group:
    """The replicas of one expert that share its states."""
    expert = group["expert_data"]
    return Group(np.maximum(expert.size / layout.replicate, 1), expert.stride)


def step_flows(
    share: RankParameters,
    states: StateBytes,
    layout: LayoutColumns,
    cluster: Cluster,
    micro_batches: Number,
    implementation: Implementation,
) -> list[Flow]:
    """Gradients reduced and parameters gathered of all that a rank learns: once a step, or every micro-batch (ZeRO-2).

    They travel in buckets, so that each pays its collective's latency.
    """
    stage = np.asarray(layout.zero_stage)
    group = groups(layout)
    flows = []
    for kind, data, shard in (
        (share.dense, group["data"], group["shard"]),
        (share.expert, group["expert_data"], _expert_shard(layout, group)),
    ):
        if np.all(np.asarray(kind) == 0):
            continue
        gradients = kind * states.reduce
        parameters = kind * states.compute
        whole, part = tiers(data, cluster), tiers(shard, cluster)
        replicas = np.maximum(np.floor(data.size / shard.size), 1)
        between = tiers(Group(replicas, shard.stride * shard.size), cluster)
        plain = np.where(stage == 0, 1.0, 0.0)
        held = gradients_whole(layout)
        first, second = np.where((stage > 0) & held, 1.0, 0.0), np.where((stage == 2) & ~held, 1.0, 0.0)
        pulled = np.where((stage == 1) | (stage == 2), 1.0, 0.0)
        across = np.where((stage > 0) & (replicas > 1), 1.0, 0.0)
        size = np.maximum(implementation.bucket_bytes, implementation.bucket_bytes_per_rank * data.size)
        buckets = np.maximum(np.ceil(gradients / size), 1.0)
        bucket, slice_, piece = gradients / buckets, gradients / buckets / part.size, parameters / buckets
        flows += [
            Flow("all-reduce", "gradients", plain * buckets, bucket, 2 * _sent(bucket, whole),
                 all_reduce_seconds(bucket, whole)),
            Flow("reduce-scatter", "gradients", first * buckets, bucket, _sent(bucket, part),
                 reduce_scatter_seconds(bucket, part)),
            Flow("reduce-scatter", EVERY_MICRO_BATCH, second * micro_batches * buckets, bucket, _sent(bucket, part),
                 reduce_scatter_seconds(bucket, part)),
            Flow("all-reduce", "gradients", across * buckets, slice_, 2 * _sent(slice_, between),
                 all_reduce_seconds(slice_, between)),
            Flow("all-gather", "parameters", pulled * buckets, piece, _sent(piece, part),
                 all_gather_seconds(piece, part)),
        ]  # fmt: skip
    return flows


def _sent(size: Number, t: Tiers) -> Number:
    return size * (t.size - 1) / t.size


def tied_flows(model: Model, tuning: Tuning, states: StateBytes, layout: LayoutColumns, cluster: Cluster) -> list[Flow]:
    """The gradient of a tied table, summed between the first and the last stage once a step."""
    if not model.tied_embeddings or tuning.kind == "lora" or tuning.frozen:
        return []
    on = np.where((np.asarray(layout.pipeline) > 1) & ~is_v(layout), 1.0, 0.0)
    size = model.vocab * (model.embedding_dim or model.hidden) / layout.tensor * states.reduce
    pipeline = groups(layout)["pipeline"]
    t = tiers(Group(2, pipeline.stride * np.maximum(layout.pipeline - 1, 1)), cluster)
    return [Flow("all-reduce", "gradients", on, size, 2 * _sent(size, t), all_reduce_seconds(size, t))]
