"""Shares: what of the model one pipeline rank holds, in layers and parameters, on one tensor rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost import parameters as count
from meshwright.cost.rank_layers import RankLayers, is_v
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.model import Model
from meshwright.spec.workload import Tuning


@dataclass(frozen=True, slots=True)
class RankParameters:
    """Parameters on one device, by how they are replicated."""

    dense: Number
    """Replicated over context and data ranks."""
    expert: Number
    """Routed experts: replicated over the ranks that hold the same experts."""

    @property
    def total(self) -> Number:
        """Both kinds."""
        return self.dense + self.expert


def expert_tensor(layout: LayoutColumns) -> Number:
    """Tensor degree of the routed experts: whole experts when they are spread, else split like any product."""
    return np.where(np.asarray(layout.expert) > 1, 1, layout.tensor)


def expert_replicas(layout: LayoutColumns) -> Number:
    """Ranks of one shard group that hold the same routed experts, and so can share their states."""
    ranks = np.where(np.asarray(layout.expert) > 1, layout.tensor, 1) * layout.context * layout.shard
    return np.where(ranks % layout.expert == 0, ranks // layout.expert, 1)


def layer_share(model: Model, layout: LayoutColumns) -> RankParameters:
    """Parameters of an average layer on one device; norms and routers are not split by tensor ranks."""
    moe_share = model.moe_layers / model.layers
    norms = count.norm_parameters(model)
    dense = norms + _attention_share(model, layout)
    if model.experts is None or moe_share < 1:
        dense = dense + (1 - moe_share) * count.dense_mlp_parameters(model) / layout.tensor
    if model.experts is None:
        return RankParameters(dense, 0.0 * dense)
    shared = count.shared_expert_parameters(model) / layout.tensor
    dense = dense + moe_share * (count.router_parameters(model) + shared)
    routed = moe_share * model.experts.count * count.expert_parameters(model)
    return RankParameters(dense, routed / layout.expert / expert_tensor(layout))


def _attention_share(model: Model, layout: LayoutColumns) -> Number:
    """Attention's parameters on one tensor rank.

    Latent attention's down-projections are whole on every rank, and so are key and value heads where there are fewer
    of them than tensor ranks (Megatron-Core's MLA and grouped-query layers).
    """
    whole = count.attention_parameters(model)
    split = whole / layout.tensor
    shapes = count.attention_matrices(model)
    if model.latent is not None:
        copied = sum(rows * columns for name, (rows, columns, _) in shapes.items() if name in ("q_down", "kv_down"))
        return split + copied * (1 - 1 / layout.tensor)
    shared = sum(rows * columns for name, (rows, columns, _) in shapes.items() if name in ("k", "v"))
    return split + shared * np.maximum(1 / model.kv_heads - 1 / layout.tensor, 0.0)


def edge_share(model: Model, layout: LayoutColumns) -> tuple[Number, Number]:
    """Parameters outside the layers on the first and on the last pipeline rank.

    With one rank both lie on it, as they do where stages lie in a V, and a tied table counts once; otherwise the last
    rank keeps its own copy of a tied table (Megatron-LM and PyTorch pipelines reduce its gradient across the two).
    """
    part = count.parameters(model)
    first = part.embedding / layout.tensor + part.position
    head = part.head / layout.tensor + part.final
    tied = part.embedding / layout.tensor if model.tied_embeddings else 0.0
    folded = is_v(layout)
    copied = np.where((np.asarray(layout.pipeline) > 1) & ~folded, tied, 0.0)
    return first + np.where(folded, head, 0.0), np.where(folded, 0.0, head + copied)


def sharded(parameters: RankParameters, layout: LayoutColumns, from_stage: int) -> Number:
    """Parameters whose state one device keeps if ZeRO stage `from_stage` and above shards that state.

    Dense ones are shared by shard and context ranks, an expert's by the ranks of a shard group that hold it.
    """
    split = np.asarray(layout.zero_stage) >= from_stage
    dense = parameters.dense / (layout.shard * layout.context) + parameters.expert / expert_replicas(layout)
    return np.where(split, dense, parameters.total)


def gradients_whole(layout: LayoutColumns) -> Number:
    """Rows that keep gradients whole until the last micro-batch, so that ZeRO-2 and 3 share them only then.

    In a pipeline: PyTorch's stages run all backwards but the last without gradient synchronisation
    (torch.distributed.pipelining, `backward_maybe_with_nosync`).
    """
    return (np.asarray(layout.zero_stage) < 2) | (np.asarray(layout.pipeline) > 1)


def kept_gradients(learned: RankParameters, layout: LayoutColumns) -> Number:
    """Parameters whose gradients one device adds up: all that its rank learns, or its shard."""
    return np.where(gradients_whole(layout), learned.total, sharded(learned, layout, 2))


def learning_share(model: Model, tuning: Tuning) -> float:
    """Share of the parameters that learn."""
    part = count.parameters(model)
    if tuning.kind == "lora":
        return count.lora_parameters(model, tuning.lora_rank, tuning.lora_targets) / part.total
    if tuning.frozen:
        frozen = sum(count.layer_parameters(model, i).total for i in range(tuning.frozen))
        return 1.0 - (frozen + part.embedding + part.position) / part.total
    return 1.0


@dataclass(frozen=True, slots=True)
class RankShare:
    """What one pipeline rank holds on one device, before data ranks shard it."""

    layers: Number
    learned_layers: Number
    """Layers with a backward."""
    has_embedding: Number
    has_head: Number
    """1 or 0."""
    held: RankParameters
    edges: Number
    """Of `held.dense`, what lies outside the layers."""
    learned_edges: Number
    """Of `learned.dense`, likewise."""
    learned: RankParameters
    """Of `held`, or beside it (adapters), what learns."""


FIRST, ORDINARY, LAST = 0, 1, -1
"""Positions of a pipeline rank: the second one speaks for the ordinary ones, since it has the most in flight."""


def rank_share(
    model: Model, layout: LayoutColumns, tuning: Tuning, layers: RankLayers, learns: RankLayers, position: int
) -> RankShare:
    """The share of the first, of an ordinary or of the last pipeline rank, with its layers and those that learn."""
    index = {FIRST: "first", ORDINARY: "middle", LAST: "last"}[position]
    mine, learned = getattr(layers, index), getattr(learns, index)
    alone = np.where(np.asarray(layout.pipeline) == 1, 1.0, 0.0)
    folded = np.where(is_v(layout), 1.0, 0.0)
    embedding = {FIRST: 1.0, ORDINARY: 0.0, LAST: alone}[position]
    head = {FIRST: np.maximum(alone, folded), ORDINARY: 0.0, LAST: 1.0 - folded}[position]
    share, (first, last) = layer_share(model, layout), edge_share(model, layout)
    edges = {FIRST: first + alone * last, ORDINARY: 0.0 * first, LAST: last + alone * first}[position]
    held = RankParameters(share.dense * mine + edges, share.expert * mine)
    if tuning.kind == "lora":
        own, learned_edges = _adapters(model, tuning, share, mine), 0.0 * edges
    else:
        learned_edges = edges - _frozen_tables(model, layout, tuning, embedding, position)
        own = RankParameters(share.dense * learned + learned_edges, share.expert * learned)
    return RankShare(mine, learned, embedding, head, held, edges, learned_edges, own)


def _adapters(model: Model, tuning: Tuning, share: RankParameters, layers: Number) -> RankParameters:
    """LoRA's adapters on so many layers, split over devices like the weights that they stand beside."""
    whole = count.lora_parameters(model, tuning.lora_rank, tuning.lora_targets)
    routed = count.routed_lora_parameters(model, tuning.lora_rank, tuning.lora_targets)
    part, experts = count.parameters(model), model.experts
    weights = model.moe_layers * experts.count * count.expert_parameters(model) if experts else 0
    beside = part.total - part.outside - weights
    expert = share.expert * (routed / weights) if weights else 0.0 * share.expert
    return RankParameters(share.dense * layers * ((whole - routed) / beside), expert * layers)


def _frozen_tables(model: Model, layout: LayoutColumns, tuning: Tuning, has_embedding: Number, position: int) -> Number:
    """Embedding tables on a rank that frozen layers keep from learning, a tied table's copy at the head among them."""
    if not tuning.frozen:
        return 0.0
    part = count.parameters(model)
    table = has_embedding * (part.embedding / layout.tensor + part.position)
    copied = (np.asarray(layout.pipeline) > 1) & ~is_v(layout) & (position == LAST) & model.tied_embeddings
    return table + np.where(copied, part.embedding / layout.tensor, 0.0)
