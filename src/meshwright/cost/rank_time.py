"""Rank time: one micro-batch's seconds on an ordinary pipeline rank, and what the edge stages cost on top."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost import operations as ops
from meshwright.cost.collectives import groups, send_seconds
from meshwright.cost.compute import Rates, block_seconds
from meshwright.cost.pipeline import Passes
from meshwright.cost.shares import RankLayers
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
    """What the slowest stage costs beyond an ordinary one; with one stage, embedding and head."""
    send: Number
    """One activation sent to the next stage."""


def rank_time(
    model: Model,
    workload: Workload,
    layout: LayoutColumns,
    cluster: Cluster,
    layer: Passes,
    count: RankLayers,
    host: float,
    accumulation: Number,
    r: Rates,
) -> RankTime:
    """Passes of the three kinds of ranks, from a layer's.

    `host` is the seconds of host work of each of forward and backward, `accumulation` the seconds of adding up a
    rank's gradients; both happen once a micro-batch.
    """
    z = ops.sizes(workload, layout)
    embedding = block_seconds(ops.embedding_block(model, workload, z), r).passes
    head = block_seconds(ops.head_block(model, workload, z), r).passes
    middle = _times(layer, count.middle)
    middle = Passes(middle.forward + host, middle.input_gradient + host, middle.weight_gradient + accumulation)
    first = _plus(embedding, _times(layer, count.first - count.middle))
    last = _plus(head, _times(layer, count.last - count.middle))
    alone = np.asarray(layout.pipeline) == 1
    slowest = np.maximum(np.maximum(first.total, last.total), 0.0)
    return RankTime(
        middle=middle,
        first=first,
        last=last,
        fixed=2 * host + accumulation,
        edge=np.where(alone, embedding.total + head.total, slowest),
        send=send_seconds(activation_bytes(model, z), groups(layout)["pipeline"], cluster),
    )


def activation_bytes(model: Model, z: ops.Sizes) -> Number:
    """Bytes between two stages for one micro-batch; tensor ranks send a slice each (arXiv:2104.04473 section 4.1)."""
    return z.element * z.tokens / z.tensor * model.hidden


def _times(passes: Passes, factor: Number) -> Passes:
    return Passes(passes.forward * factor, passes.input_gradient * factor, passes.weight_gradient * factor)


def _plus(a: Passes, b: Passes) -> Passes:
    return Passes(
        a.forward + b.forward,
        a.input_gradient + b.input_gradient,
        a.weight_gradient + b.weight_gradient,
    )
