"""Memory: bytes on the fullest device, as the maximum over named instants of a step.

State bytes: ZeRO, arXiv:1910.02054 section 3.1 and figure 1. Activations: Korthikanti et al. 2022,
arXiv:2205.05198 equations 1 to 6, generalised to gated, grouped-query, fused and mixture layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from meshwright.cost import operations as ops
from meshwright.cost.layer import layer_operations
from meshwright.cost.offload import host_bytes
from meshwright.cost.pipeline import in_flight
from meshwright.cost.rank_layers import RankLayers, given_by_rank, learned_layers, one_of, rank_layers
from meshwright.cost.shares import FIRST, LAST, ORDINARY, RankShare, rank_share, sharded
from meshwright.cost.states import bucket_bytes, gathered_bytes, state_shares
from meshwright.cost.step import micro_batch_count
from meshwright.cost.verdict import with_reserve
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.layout import SCHEDULES
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
    """ZeRO-3: whole parameters and gradients of the layers at work; ZeRO-2: a layer's whole gradient."""
    logits: Number
    transient: Number
    """Alive inside one layer's backward: what is recomputed, and the gradients of activations."""
    buffers: Number
    """Gradient buckets and library workspaces."""
    step: Number
    """Temporaries of the optimizer step."""

    late_gradients: Number
    """1 where gradients do not exist before the first backward."""

    def where(self, there: Number) -> RankMemory:
        """Nothing on rows where the rank is not there."""
        return RankMemory(**{f.name: np.where(there, getattr(self, f.name), 0.0) for f in fields(self)})

    def peaks(self) -> list[Number]:
        """Bytes at each of INSTANTS."""
        return [sum(self.at(instant).values()) for instant in INSTANTS]

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
    """Rank 0, the last one (-1), and ordinary ones where they may be the fullest: the second, or, by hand, each."""

    def rank_bytes(self, position: int) -> Number:
        """The peak of the first (0) or the last (-1) pipeline rank alone."""
        return np.max(np.stack(np.broadcast_arrays(*self.ranks[position].peaks())), axis=0)


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
    model: Model, cluster: Cluster, workload: Workload, layout: LayoutColumns, implementation: Implementation
) -> Peak:
    """The fullest device's bytes: first, second and last pipeline rank are priced, the fullest one decides."""
    by_cost, tuning = implementation.balanced_by_cost, workload.tuning
    layers = rank_layers(model, layout, by_cost)
    learned = learned_layers(model, layout, by_cost, tuning, layers)
    shares = {k: rank_share(model, layout, tuning, layers, learned, k) for k in (FIRST, ORDINARY, LAST)}
    states = state_bytes(workload, model)
    job = _Job(model, workload, layout, implementation, states)
    kept, ordinary = _kept_by_layer(job), shares[ORDINARY]
    ranks = {k: _rank(job, shares[k], ordinary, k, kept) for k in (FIRST, LAST)}
    fuller = _fuller_in_between(layout, layers, learned)
    if np.any(fuller):
        for position, share in _between(job, ordinary).items():
            shares[position] = share
            ranks[position] = _rank(job, share, ordinary, position, kept).where(fuller)
    found = [(total, k, i) for k, rank in ranks.items() for i, total in enumerate(rank.peaks())]
    totals = np.stack(np.broadcast_arrays(*[total for total, _, _ in found]))
    best = np.argmax(totals, axis=0)
    peak = np.max(totals, axis=0)
    hosts = [
        np.where(
            (k in (FIRST, LAST)) | fuller, host_bytes(shares[k].learned, shares[k].held, states, layout, cluster), 0
        )
        for k in ranks
    ]
    return Peak(
        bytes=peak,
        stage=np.array([position for _, position, _ in found])[best],
        instant=np.array([index for _, _, index in found])[best],
        reserved=with_reserve(peak, cluster.device),
        host=np.max(np.stack(np.broadcast_arrays(*hosts)), axis=0),
        ranks=ranks,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    model: Model
    workload: Workload
    layout: LayoutColumns
    implementation: Implementation
    states: StateBytes


@dataclass(frozen=True, slots=True)
class _Kept:
    """Bytes of one layer for one micro-batch."""

    saved: Number
    """Kept from forward to backward."""
    again: Number
    """Alive inside a layer's backward: what was recomputed."""


def _fuller_in_between(layout: LayoutColumns, layers: RankLayers, learned: RankLayers) -> Number:
    """Rows where an ordinary rank may hold more than the first: it has more layers, or more that learn."""
    more = (layers.middle > layers.first) | (learned.middle > learned.first)
    return (np.asarray(layout.pipeline) > 2) & more


def _between(job: _Job, ordinary: RankShare) -> dict[int, RankShare]:
    """Ordinary ranks to price: the second one speaks for all, but where layers are given by hand each for itself.

    In columns of layouts it is the fullest one, with what the second one has in flight: an upper bound.
    """
    by_hand, layout, tuning = job.layout.stage_layers, job.layout, job.workload.tuning
    if not isinstance(by_hand, tuple) or not by_hand:
        return {ORDINARY: ordinary}
    found = {}
    counts = zip(given_by_rank(by_hand, layout), given_by_rank(by_hand, layout, tuning.frozen), strict=True)
    for rank, (held, learned) in enumerate(counts):
        if 0 < rank < layout.pipeline - 1:
            alike = RankLayers(0, held, 0), RankLayers(0, learned, 0)
            found[rank] = rank_share(job.model, layout, tuning, *alike, ORDINARY)
    return found


def _kept_by_layer(job: _Job) -> _Kept:
    """What a layer keeps, with the copies that the software makes of it.

    Recomputation spares the copies: the selective one drops what comes from norms and activations, unless it is busy
    with unfused scores.
    """
    model, layout, software = job.model, job.layout, job.implementation
    z = ops.sizes(job.workload, layout)
    code = np.asarray(layout.recompute)
    by_kind = [layer_activations(model, job.workload, layout, kind) for kind in range(3)]
    saved = np.select([code == 0, code == 1], by_kind[:2], by_kind[2])
    copies = software.ffn_copies * z.element * z.tokens * _inner_width(model, layout)
    split = np.where(np.asarray(layout.tensor) > 1, software.tensor_copies, 0.0)
    copies = copies + (software.hidden_copies + split) * z.element * z.norm_tokens * model.hidden
    spared = (code == 2) | ((code == 1) & job.workload.fused_attention)
    again = np.maximum(by_kind[0] - saved, 0.0)
    return _Kept(saved + np.where(spared, 0.0, copies), again + np.where(spared, copies, 0.0))


def _rank(job: _Job, share: RankShare, ordinary: RankShare, position: int, kept: _Kept) -> RankMemory:
    """One pipeline rank: position 0 is the first, -1 the last, others are ranks."""
    model, workload, layout, software, states = job.model, job.workload, job.layout, job.implementation, job.states
    z = ops.sizes(workload, layout)
    rank = layout.pipeline - 1 if position == LAST else position
    m = micro_batch_count(workload, layout)
    flying = in_flight(layout.schedule, layout.pipeline, m, layout.virtual_stages, rank)
    parameters, gradients, optimizer = state_shares(share.held, share.learned, states, layout)
    vocabulary = model.vocab / layout.tensor
    gathered_head = software.head_copies * z.element * model.hidden
    flow = software.transient * z.element * z.tokens * (2 * model.hidden + 2 * _inner_width(model, layout))
    return RankMemory(
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        activations=flying * (share.learned_layers * kept.saved + _edge_kept(job, share, z))
        + share.has_head * _waiting_logits(layout, flying) * (z.element + 4) * vocabulary * z.tokens,
        gathered=gathered_bytes(share, ordinary, states, layout, software),
        logits=share.has_head * (software.logits_bytes * vocabulary + gathered_head) * z.tokens,
        transient=kept.again + flow,
        late_gradients=np.where((np.asarray(m) <= 1) & (not software.persistent_gradients), 1.0, 0.0),
        buffers=bucket_bytes(share.learned, layout, software) + software.workspace_bytes,
        step=software.step_bytes * sharded(share.learned, layout, 1),
    )


def _edge_kept(job: _Job, share: RankShare, z: ops.Sizes) -> Number:
    """Bytes kept outside the layers for one micro-batch: the embedding's dropout mask, the head's and norm's input."""
    tokens = z.norm_tokens * job.model.hidden
    mask = tokens if job.workload.dropout else 0.0
    return share.has_embedding * mask + share.has_head * 2 * z.element * tokens


def _waiting_logits(layout: LayoutColumns, flying: Number) -> Number:
    """Micro-batches whose logits and their gradient's input in fp32 wait for a backward while another's loss is taken.

    Only schedules that run all forwards first let them wait.
    """
    first = one_of(layout.schedule, (SCHEDULES.index("gpipe"), SCHEDULES.index("loopedbfs")))
    return np.where(first & (np.asarray(layout.pipeline) > 1), np.maximum(flying - 1, 0), 0.0)


def _inner_width(model: Model, layout: LayoutColumns) -> Number:
    """Inner width of an average layer's feed-forward part on one tensor rank, a token."""
    share, experts = model.moe_layers / model.layers, model.experts
    width = (1 - share) * model.ffn_hidden
    if experts is not None:
        width += share * (experts.ffn_hidden * experts.per_token + experts.shared_ffn_hidden)
    return width / layout.tensor
