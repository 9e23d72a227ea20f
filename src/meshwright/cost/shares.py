"""Shares: what of the model one pipeline rank holds, in layers and parameters, on one tensor rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost import parameters as count
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.model import Model
from meshwright.spec.workload import Tuning


@dataclass(frozen=True, slots=True)
class RankLayers:
    """Layers on a first, an ordinary and a last pipeline rank."""

    first: Number
    middle: Number
    """The fullest rank that is neither first nor last (with fewer than three ranks: the fuller of the two)."""
    last: Number


def balanced_layers(model: Model, layout: LayoutColumns, by_cost: bool = False) -> RankLayers:
    """Layers a rank: even, or (`by_cost`) cut so that layers and head weigh the same on every stage.

    Even: where they do not divide, the last stage and then the first get one less; embedding and head make those two
    the slowest. By cost: stage k ends at the first layer where k/S of the weight is reached, the rule of nanotron's
    and torchtitan's splitters.
    """
    if by_cost:
        return _by_cost(model, layout)
    full = np.ceil(model.layers / layout.stages)
    missing = full * layout.stages - model.layers
    virtual = layout.virtual_stages
    return RankLayers(
        first=full * virtual - np.where((missing > 1) & (layout.stages > 1), 1, 0),
        middle=full * virtual,
        last=full * virtual - np.where((missing > 0) & (layout.stages > 1), 1, 0),
    )


def _by_cost(model: Model, layout: LayoutColumns) -> RankLayers:
    whole = count.parameters(model)
    layer = (whole.active - whole.outside) / model.layers
    target = (model.layers + model.vocab * model.hidden / layer) / layout.stages
    most = np.minimum(np.ceil(target - 1e-9), model.layers)
    ahead = np.minimum(np.ceil((layout.stages - 1) * target - 1e-9), model.layers)
    remainder = model.layers - ahead
    alone = np.asarray(layout.stages) == 1
    virtual = layout.virtual_stages
    first = np.where(alone, model.layers, most * virtual)
    last = np.where(alone, model.layers, most * (virtual - 1) + remainder)
    return RankLayers(first, first, last)


def given_layers(stage_layers: tuple[int, ...], pipeline: int) -> RankLayers:
    """Layers a rank from the stages' layers by hand; stage i lies on rank i mod pipeline."""
    ranks = [sum(stage_layers[rank::pipeline]) for rank in range(pipeline)]
    return RankLayers(ranks[0], max(ranks[1:-1] or ranks), ranks[-1])


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

    def divided(self, parts: Number) -> RankParameters:
        """One of `parts` equal parts."""
        return RankParameters(self.dense / parts, self.expert / parts)


def expert_tensor(layout: LayoutColumns) -> Number:
    """Tensor degree of the routed experts: whole experts when they are spread, else split like any product."""
    return np.where(np.asarray(layout.expert) > 1, 1, layout.tensor)


def expert_replicas(layout: LayoutColumns) -> Number:
    """Ranks of one shard group that hold the same routed experts, and so can share their states."""
    ranks = np.where(np.asarray(layout.expert) > 1, layout.tensor, 1) * layout.context * layout.shard
    return np.maximum(ranks / layout.expert, 1)


def layer_share(model: Model, layout: LayoutColumns) -> RankParameters:
    """Parameters of an average layer on one device; norms and routers are not split by tensor ranks."""
    moe_share = model.moe_layers / model.layers
    norms = count.norm_parameters(model)
    dense = norms + count.attention_parameters(model) / layout.tensor
    if model.experts is None or moe_share < 1:
        dense = dense + (1 - moe_share) * count.dense_mlp_parameters(model) / layout.tensor
    if model.experts is None:
        return RankParameters(dense, 0.0 * dense)
    shared = count.shared_expert_parameters(model) / layout.tensor
    dense = dense + moe_share * (count.router_parameters(model) + shared)
    routed = moe_share * model.experts.count * count.expert_parameters(model)
    return RankParameters(dense, routed / layout.expert / expert_tensor(layout))


def padded_vocab(model: Model, layout: LayoutColumns) -> Number:
    """Rows of the token table once each tensor rank holds the same number."""
    return np.ceil(model.vocab / layout.tensor) * layout.tensor


def edge_share(model: Model, layout: LayoutColumns) -> tuple[Number, Number]:
    """Parameters outside the layers on the first and on the last pipeline rank.

    With one rank both lie on it and a tied table counts once; with more, the last rank keeps its own copy of a
    tied table (Megatron-LM and PyTorch pipelines reduce its gradient across the two).
    """
    part = count.parameters(model)
    first = part.embedding / layout.tensor + part.position
    head = part.head / layout.tensor + part.final
    tied = part.embedding / layout.tensor if model.tied_embeddings else 0.0
    return first, head + np.where(np.asarray(layout.pipeline) > 1, tied, 0.0)


def first_rank_share(model: Model, layout: LayoutColumns, layers: RankLayers) -> RankParameters:
    """Parameters on the first pipeline rank: its layers, the embedding and, where it is the only one, the head."""
    share = layer_share(model, layout)
    first, last = edge_share(model, layout)
    edges = first + np.where(np.asarray(layout.pipeline) > 1, 0.0, last)
    return RankParameters(share.dense * layers.first + edges, share.expert * layers.first)


def learning_share(model: Model, tuning: Tuning) -> float:
    """Share of the parameters that learn."""
    if tuning.kind == "lora":
        return count.lora_parameters(model, tuning.lora_rank, tuning.lora_targets) / count.parameters(model).total
    if tuning.kind == "frozen":
        part = count.parameters(model)
        frozen = sum(count.layer_parameters(model, i).total for i in range(tuning.frozen_layers))
        return 1.0 - (frozen + part.embedding + part.position) / part.total if tuning.frozen_layers else 1.0
    return 1.0
