"""Layer: one average layer's seconds and collectives for one micro-batch, forward, backward and replayed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost import operations as ops
from meshwright.cost.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    dispatch_seconds,
    groups,
    reduce_scatter_seconds,
    tiers,
)
from meshwright.cost.compute import BlockSeconds, Rates, block_seconds
from meshwright.cost.pipeline import Passes
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.layout import CONTEXT_KINDS
from meshwright.spec.model import Experts, Model
from meshwright.spec.workload import Workload

RING, ALLGATHER, ULYSSES = range(len(CONTEXT_KINDS))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One layer's collectives of one kind on one axis, for one micro-batch."""

    axis: str
    collective: str
    forward: Number
    """Collectives in forward."""
    backward: Number
    replayed: Number
    """Collectives that full recomputation runs again."""
    size: Number
    """Bytes of the whole tensor."""
    sent: Number
    """Bytes that one device sends in one of them."""
    seconds: Number
    hidden_behind: Number = 0.0
    """Forward seconds of compute that each can overlap with."""


def weighted(dense: BlockSeconds, moe: BlockSeconds | None, share: float) -> BlockSeconds:
    """The average layer of a model whose layers are of two kinds."""
    if moe is None:
        return dense

    def mix(a: Number, b: Number) -> Number:
        return (1 - share) * a + share * b

    p, q = dense.passes, moe.passes
    mixed = Passes(
        mix(p.forward, q.forward),
        mix(p.input_gradient, q.input_gradient),
        mix(p.weight_gradient, q.weight_gradient),
    )
    return BlockSeconds(mixed, mix(dense.replay, moe.replay))


def layer_operations(
    model: Model, workload: Workload, layout: LayoutColumns
) -> tuple[list[ops.Operation], list[ops.Operation] | None]:
    """The operations of a dense layer and, where the model has any, of a mixture layer."""
    z = ops.sizes(workload, layout)
    attention = ops.attention_block(model, workload, z)
    dense = attention + ops.mlp_block(model, workload, z)
    if model.experts is None:
        return dense, None
    return dense, attention + ops.moe_block(model, workload, layout, z)


def layer_seconds(model: Model, workload: Workload, layout: LayoutColumns, r: Rates) -> BlockSeconds:
    """Compute seconds of an average layer."""
    dense, moe = layer_operations(model, workload, layout)
    mixture = block_seconds(moe, r) if moe is not None else None
    return weighted(block_seconds(dense, r), mixture, model.moe_layers / model.layers)


def layer_exchanges(
    model: Model,
    workload: Workload,
    layout: LayoutColumns,
    cluster: Cluster,
    r: Rates,
    implementation: Implementation,
) -> list[Exchange]:
    """The collectives inside an average layer: tensor, context and expert axes."""
    z = ops.sizes(workload, layout)
    exchanges = _tensor_exchanges(model, layout, z, cluster)
    exchanges += _context_exchanges(model, workload, layout, z, cluster, r)
    if model.experts is not None:
        exchanges.append(_expert_exchange(model, model.experts, layout, z, cluster, implementation))
    return exchanges


def _expert_exchange(
    model: Model,
    experts: Experts,
    layout: LayoutColumns,
    z: ops.Sizes,
    cluster: Cluster,
    implementation: Implementation,
) -> Exchange:
    """Tokens to their experts and back, forward and backward (arXiv:2006.16668 section 3.2)."""
    t = tiers(groups(layout)["expert"], cluster)
    size = z.element * z.tokens / z.tensor * experts.per_token * model.hidden
    once = dispatch_seconds(size, experts.per_token, t)
    seconds = once if implementation.dispatch_once else all_to_all_seconds(size, t)
    count = np.where(np.asarray(layout.expert) > 1, 2.0 * model.moe_layers / model.layers, 0.0)
    return Exchange("expert", "all-to-all", count, count, count, size, size * (t.size - 1) / t.size, seconds)


def _tensor_exchanges(model: Model, layout: LayoutColumns, z: ops.Sizes, cluster: Cluster) -> list[Exchange]:
    """Two all-reduces forward and two backward a layer (arXiv:1909.08053 section 3).

    Sequence parallelism makes each an all-gather and a reduce-scatter of the same bytes (arXiv:2205.05198).
    """
    t = tiers(groups(layout)["tensor"], cluster)
    size = z.element * z.tokens * model.hidden
    blocks: Number = 1.0 if model.parallel_block else 2.0
    if model.experts is not None and not model.experts.shared_ffn_hidden:
        # spread experts take their tokens by all-to-all: only attention keeps its pair
        share = model.moe_layers / model.layers
        blocks = np.where(np.asarray(layout.expert) > 1, blocks - share, blocks)
    on = np.where(np.asarray(layout.tensor) > 1, blocks, 0.0)
    half = all_gather_seconds(size, t)
    sent = size * (t.size - 1) / t.size
    sequence = np.asarray(layout.sequence_parallel) > 0
    gathers = np.where(sequence, on, 0.0)
    reduces = np.where(sequence, 0.0, on)
    return [
        Exchange("tensor", "all-gather", gathers, gathers, gathers, size, sent, half),
        Exchange("tensor", "reduce-scatter", gathers, gathers, gathers, size, sent, reduce_scatter_seconds(size, t)),
        Exchange("tensor", "all-reduce", reduces, reduces, reduces, size, 2 * sent, all_reduce_seconds(size, t)),
    ]


def _context_exchanges(
    model: Model, workload: Workload, layout: LayoutColumns, z: ops.Sizes, cluster: Cluster, r: Rates
) -> list[Exchange]:
    """Keys and values round a ring (arXiv:2310.01889), gathered, or heads traded for sequence (arXiv:2309.14509)."""
    t = tiers(groups(layout)["context"], cluster)
    kind = np.asarray(layout.context_kind)
    more = np.asarray(layout.context) > 1
    if model.latent:
        key_value = (model.latent.qk_nope_head_dim + model.latent.v_head_dim) * model.heads / z.tensor
        query = key_value
    else:
        key_value = 2 * np.maximum(model.kv_heads / z.tensor, 1.0) * model.head_dim
        query = model.heads * model.head_dim / z.tensor
    block = z.element * z.tokens * key_value
    whole = block * layout.context
    core = 2 * z.tokens * ops.visible_keys(model, workload) * 2 * query / r.attention
    ring = np.where(more & (kind == RING), 1.0, 0.0)
    gather = np.where(more & (kind == ALLGATHER), 1.0, 0.0)
    trade = np.where(more & (kind == ULYSSES), 1.0, 0.0)
    both = z.element * z.tokens * (key_value + 2 * query)
    passed = (t.size - 1) / t.size * whole
    return [
        Exchange(
            "context", "send/recv", ring * (t.size - 1), 2 * ring * (t.size - 1), ring * (t.size - 1),
            block, block, all_gather_seconds(whole, t) / np.maximum(t.size - 1, 1), core / t.size,
        ),
        Exchange("context", "all-gather", gather, gather, gather, whole, passed, all_gather_seconds(whole, t)),
        Exchange("context", "reduce-scatter", 0.0 * gather, gather, 0.0 * gather, whole, passed,
                 reduce_scatter_seconds(whole, t)),
        Exchange("context", "all-to-all", trade, trade, trade, both, both * (t.size - 1) / t.size,
                 all_to_all_seconds(both, t)),
    ]  # fmt: skip
