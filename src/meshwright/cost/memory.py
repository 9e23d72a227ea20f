"""Memory: bytes on the fullest device, as the maximum over named instants of a step.

State bytes: ZeRO, arXiv:1910.02054 section 3.1 and figure 1. Activations: Korthikanti et al. 2022,
arXiv:2205.05198 equations 1 to 6, generalised to gated, grouped-query, fused and mixture layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost import operations as ops
from meshwright.cost.layer import layer_operations
from meshwright.cost.offload import host_bytes
from meshwright.cost.pipeline import in_flight
from meshwright.cost.shares import (
    RankLayers,
    RankParameters,
    balanced_layers,
    edge_share,
    expert_replicas,
    first_rank_share,
    layer_share,
    learning_share,
)
from meshwright.cost.step import micro_batch_count
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.model import Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import StateBytes, Workload

INSTANTS = ("end of forward", "loss", "backward of a layer", "optimizer step")


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one pipeline rank's device by part, and at each instant."""

    parameters: Number
    gradients: Number
    optimizer: Number
    """Master copy, moments and main gradients."""
    activations: Number
    """Kept for backward by all micro-batches in flight."""
    gathered: Number
    """ZeRO-3: whole parameters and gradients of the layers at work."""
    logits: Number
    transient: Number
    """Alive inside one layer's backward: what is recomputed, and the gradients of activations."""
    buffers: Number
    """Gradient buckets and library workspaces."""
    step: Number
    """Temporaries of the optimizer step."""

    late_gradients: Number
    """1 where gradients do not exist before the first backward."""

    def at(self, instant: str) -> dict[str, Number]:
        """Bytes by part at an instant of INSTANTS."""
        parts = {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "buffers": self.buffers,
        }
        if instant == "optimizer step":
            return parts | {"temporary": self.step}
        parts |= {"activations": self.activations, "gathered": self.gathered}
        if instant in ("end of forward", "loss"):
            parts["gradients"] = self.gradients * (1 - self.late_gradients)
        if instant == "loss":
            parts["logits"] = self.logits
        if instant == "backward of a layer":
            parts["temporary"] = self.transient
        return parts


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest device over pipeline ranks and instants; numbers or columns."""

    bytes: Number
    stage: Number
    instant: Number
    """Index in INSTANTS."""
    reserved: Number
    """With fragmentation, context and communication buffers."""
    host: Number
    ranks: Mapping[int, RankMemory]
    """Rank 0 and the last rank (key -1)."""

    def rank_bytes(self, position: int) -> Number:
        """The peak of the first (0) or the last (-1) pipeline rank alone."""
        rank = self.ranks[position]
        totals = [sum(rank.at(instant).values()) for instant in INSTANTS]
        return np.max(np.stack(np.broadcast_arrays(*totals)), axis=0)


def layer_activations(model: Model, workload: Workload, layout: LayoutColumns, recompute: int) -> Number:
    """Bytes that an average layer keeps for backward: none, selective (1) or full (2) recomputation.

    Korthikanti et al. 2022: sbh(34 + 5as/h) for one rank, equation 1; with tensor and sequence parallelism
    sbh/t (34 + 5as/h), equation 4; 34sbh/t selective, equation 6; 2sbh full.
    """
    z = ops.sizes(workload, layout)
    if recompute == 2:
        return z.element * z.norm_tokens * model.hidden
    dense, moe = layer_operations(model, workload, layout)
    kept = _kept(dense, recompute)
    if moe is None:
        return kept
    share = model.moe_layers / model.layers
    return (1 - share) * kept + share * _kept(moe, recompute)


def _kept(operations: list[ops.Operation], recompute: int) -> Number:
    total: Number = 0.0
    for operation in operations:
        if not (recompute == 1 and operation.dropped):
            total = total + operation.saved
    return total


def peak_memory(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    layout: LayoutColumns,
    implementation: Implementation,
    layers: RankLayers | None = None,
) -> Peak:
    """The fullest device's bytes: first and last pipeline rank are priced, the fuller one decides."""
    count = layers or balanced_layers(model, layout, implementation.balanced_by_cost)
    kept = [layer_activations(model, workload, layout, kind) for kind in range(3)]
    code = np.asarray(layout.recompute)
    saved = np.select([code == 0, code == 1], [kept[0], kept[1]], kept[2])
    ranks = {
        position: _rank(model, workload, layout, implementation, count, position, saved, kept[0])
        for position in (0, -1)
    }
    candidates = []
    for position, rank in ranks.items():
        for index, instant in enumerate(INSTANTS):
            if instant == "loss" and position == 0:
                continue
            candidates.append((sum(rank.at(instant).values()), position, index))
    totals = np.stack(np.broadcast_arrays(*[total for total, _, _ in candidates]))
    best = np.argmax(totals, axis=0)
    peak = np.max(totals, axis=0)
    reached = cluster.device.efficiency
    held = first_rank_share(model, layout, count)
    learning = learning_share(model, workload.tuning)
    return Peak(
        bytes=peak,
        stage=np.array([position for _, position, _ in candidates])[best],
        instant=np.array([index for _, _, index in candidates])[best],
        reserved=peak * (1 + reached.fragmentation) + reached.reserved_bytes,
        host=host_bytes(held.total * learning, held.total, state_bytes(workload, model), layout, cluster),
        ranks=ranks,
    )


def _rank(
    model: Model,
    workload: Workload,
    layout: LayoutColumns,
    implementation: Implementation,
    count: RankLayers,
    position: int,
    saved: Number,
    whole: Number,
) -> RankMemory:
    """One pipeline rank: position 0 is the first, -1 the last."""
    z = ops.sizes(workload, layout)
    alone = np.where(np.asarray(layout.pipeline) == 1, 1.0, 0.0)
    is_first = 1.0 if position == 0 else alone
    is_last = 1.0 if position == -1 else alone
    layers = count.first if position == 0 else count.last
    first, last = edge_share(model, layout)
    share = layer_share(model, layout)
    edges = is_first * first + is_last * last
    dense, expert = share.dense * layers + edges, share.expert * layers
    states = state_bytes(workload, model)
    learning = learning_share(model, workload.tuning)

    rank = 0 if position == 0 else layout.pipeline - 1
    m = micro_batch_count(workload, layout)
    flying = in_flight(layout.schedule, layout.pipeline, m, layout.virtual_stages, rank)
    mask = z.norm_tokens * model.hidden if workload.dropout else 0.0
    edge_kept = is_first * mask + is_last * 2 * z.element * z.norm_tokens * model.hidden
    copies = implementation.ffn_copies * z.element * z.tokens * _inner_width(model, layout)
    split = np.where(np.asarray(layout.tensor) > 1, implementation.tensor_copies, 0.0)
    copies = copies + (implementation.hidden_copies + split) * z.element * z.norm_tokens * model.hidden
    # selective recomputation drops what comes from norms and activations, unless it is busy with unfused scores
    spared = (np.asarray(layout.recompute) == 2) | ((np.asarray(layout.recompute) == 1) & workload.fused_attention)
    kept = saved + np.where(spared, 0.0, copies)
    activations = flying * (layers * kept + edge_kept)

    vocabulary = model.vocab / layout.tensor
    gathered_head = implementation.head_copies * z.element * model.hidden
    gathered = _gathered(share, edges, states, layout, learning, implementation)
    recomputed = np.maximum(whole - saved, 0.0) + copies
    flow = implementation.transient * z.element * z.tokens * (2 * model.hidden + 2 * _inner_width(model, layout))
    parameters, gradients, optimizer = state_shares(dense, expert, states, layout, learning)
    return RankMemory(
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        activations=activations,
        gathered=gathered,
        logits=is_last * (implementation.logits_bytes * vocabulary + gathered_head) * z.tokens,
        transient=recomputed + flow,
        late_gradients=np.where((np.asarray(m) <= 1) & (not implementation.persistent_gradients), 1.0, 0.0),
        buffers=_bucket_bytes(dense + expert, layout, implementation) * learning + implementation.workspace_bytes,
        step=implementation.step_bytes * (dense + expert) * learning / _shards(layout, 1),
    )


def _bucket_bytes(held: Number, layout: LayoutColumns, implementation: Implementation) -> Number:
    """Bytes of the flat gradient copies that reductions work on; FSDP's are part of what it gathers."""
    below = np.asarray(layout.zero_stage) < 3
    return np.where(below, implementation.reduction_bytes, 0.0) * held


def _inner_width(model: Model, layout: LayoutColumns) -> Number:
    """Inner width of an average layer's feed-forward part on one tensor rank, a token."""
    share, experts = model.moe_layers / model.layers, model.experts
    width = (1 - share) * model.ffn_hidden
    if experts is not None:
        width += share * (experts.ffn_hidden * experts.per_token + experts.shared_ffn_hidden)
    return width / layout.tensor


def _shards(layout: LayoutColumns, from_stage: int) -> Number:
    """Ranks that share a state kept whole below ZeRO stage `from_stage`; context ranks share too."""
    return np.where(np.asarray(layout.zero_stage) >= from_stage, layout.shard * layout.context, 1)


def state_shares(
    dense: Number, expert: Number, states: StateBytes, layout: LayoutColumns, learning: float
) -> tuple[Number, Number, Number]:
    """Bytes of parameters, gradients and optimizer states on one device (ZeRO figure 1).

    Offloaded states, and those that parameter servers keep, leave the device; a learning share below one has no
    gradients and states for the rest.
    """

    def bytes_of(per_parameter: float, stage: int) -> Number:
        ways = np.where(np.asarray(layout.zero_stage) >= stage, expert_replicas(layout), 1)
        return per_parameter * (dense / _shards(layout, stage) + expert / ways)

    elsewhere = (np.asarray(layout.offload_optimizer) > 0) | (np.asarray(layout.servers) > 0)
    host_optimizer = np.where(elsewhere, 0.0, 1.0)
    host_parameters = 1.0 - np.asarray(layout.offload_parameters)
    second = np.asarray(layout.secondary_shard)
    copy = np.where(second > 0, states.compute * (dense + expert) / np.maximum(second, 1), 0.0)
    parameters = bytes_of(states.parameter, 3) * host_parameters + copy
    gradients = bytes_of(states.gradient, 2) * learning
    optimizer = bytes_of(states.main_gradient + states.master + states.moments, 1) * learning * host_optimizer
    return parameters, gradients, optimizer


def _gathered(
    share: RankParameters,
    edges: Number,
    states: StateBytes,
    layout: LayoutColumns,
    learning: float,
    implementation: Implementation,
) -> Number:
    """ZeRO-3: parameters of the layers at work, and one layer's whole gradient; the edges' count as one layer."""
    on = np.where((np.asarray(layout.zero_stage) == 3) & (layout.shard * layout.context > 1), 1.0, 0.0)
    largest = np.maximum(share.total, edges)
    whole = implementation.gathered_layers * share.total * states.compute
    return on * (np.maximum(whole, largest * states.compute) + largest * learning * states.reduce)
