"""Rank time: one micro-batch's seconds on an ordinary pipeline rank, and what the edge stages cost on top."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost import operations as ops
from meshwright.cost.collectives import groups, send_seconds
from meshwright.cost.compute import Rates, block_seconds
from meshwright.cost.layer_time import weight_share
from meshwright.cost.pipeline import Passes
from meshwright.cost.rank_layers import RankLayers, is_v
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class RankTime:
    """Seconds of one micro-batch; numbers or columns."""

    middle: Passes
    """All layers of an ordinary rank, and what the host and the gradient sums add."""
    first: Passes
    last: Passes
    """What the first and last stage cost on top: embedding, head, and layers more or fewer."""
    fixed: Number
    """Of `middle`, what is no layer: host work and adding up gradients."""
    edge: Number
    """What the slowest rank costs beyond an ordinary one; with one rank, embedding and head."""
    send: Number
    """One activation sent to the next stage."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Embedding and head, for one micro-batch."""

    embedding: Passes
    head: Passes


def edge_passes(model: Model, workload: Workload, layout: LayoutColumns, r: Rates) -> Edges:
    """Compute seconds of embedding and head; where only adapters learn, the head has no weight gradient."""
    z = ops.sizes(workload, layout)
    embedding = block_seconds(ops.embedding_block(model, workload, z), r).passes
    head = block_seconds(ops.head_block(model, workload, z), r).passes
    learned = Passes(head.forward, head.input_gradient, head.weight_gradient * weight_share(workload.tuning))
    return Edges(embedding, learned)


def rank_time(
    layout: LayoutColumns,
    layer: Passes,
    edges: Edges,
    layers: RankLayers,
    learned: RankLayers,
    host: float,
    accumulation: Number,
    send: Number,
) -> RankTime:
    """Passes of the three kinds of ranks, from a layer's: forward through all layers, backward through the learned.

    `host` is the seconds of host work of each of forward and backward, `accumulation` the seconds of adding up a
    rank's gradients; both happen once a micro-batch.
    """
    middle = _times(layer, layers.middle, learned.middle)
    middle = Passes(middle.forward + host, middle.input_gradient + host, middle.weight_gradient + accumulation)
    # in a V the last stage lies on the first rank, whose layers `first` already counts
    more, more_learned = _unfolded(layout, layers), _unfolded(layout, learned)
    first = plus(edges.embedding, _times(layer, layers.first - layers.middle, learned.first - learned.middle))
    last = plus(edges.head, _times(layer, more, more_learned))
    return RankTime(
        middle=middle,
        first=first,
        last=last,
        fixed=2 * host + accumulation,
        edge=_edge(layout, first.total, last.total),
        send=send,
    )


def _unfolded(layout: LayoutColumns, layers: RankLayers) -> Number:
    return np.where(is_v(layout), 0, layers.last - layers.middle)


def _edge(layout: LayoutColumns, first: Number, last: Number) -> Number:
    """What the slowest rank has beyond an ordinary one; two ranks have no ordinary one."""
    both, slower = first + last, np.maximum(first, last)
    p = np.asarray(layout.pipeline)
    ordinary = np.where(is_v(layout), both, slower)
    return np.where(p == 1, both, np.where((p == 2) & ~is_v(layout), ordinary, np.maximum(ordinary, 0.0)))


def activation_send_seconds(model: Model, workload: Workload, layout: LayoutColumns, cluster: Cluster) -> Number:
    """Seconds of one activation sent to the next stage."""
    return send_seconds(activation_bytes(model, ops.sizes(workload, layout)), groups(layout)["pipeline"], cluster)


def activation_bytes(model: Model, z: ops.Sizes) -> Number:
    """Bytes between two stages for one micro-batch; tensor ranks send a slice each (arXiv:2104.04473 section 4.1)."""
    return z.element * z.tokens / z.tensor * model.hidden


def plus(a: Passes, b: Passes) -> Passes:
    """Pass by pass."""
    return Passes(
        a.forward + b.forward,
        a.input_gradient + b.input_gradient,
        a.weight_gradient + b.weight_gradient,
    )


def _times(passes: Passes, forward: Number, backward: Number) -> Passes:
    return Passes(passes.forward * forward, passes.input_gradient * backward, passes.weight_gradient * backward)
