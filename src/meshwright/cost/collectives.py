"""Collectives by the alpha-beta model, best of ring, tree and hierarchical, on two tiers of links.

Bytes are of the whole tensor on one rank (nccl-tests' convention): an all-gather of `size` ends with `size`
bytes on every rank. Latency is alpha, one hop. Source of the ring formulas: Thakur et al. 2005; NCCL's own
performance notes (busbw = algbw x 2(n-1)/n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number


@dataclass(frozen=True, slots=True)
class Group:
    """One axis' ranks: how many, and how far apart in rank order."""

    size: Number
    stride: Number


@dataclass(frozen=True, slots=True)
class Tiers:
    """The links that one group sees: its members a node, and its share of each tier."""

    size: Number
    per_node: Number
    """Members in one node."""
    intra: Number
    """Bytes/s inside a node, per device."""
    inter: Number
    """Bytes/s between nodes, for the group on one node: the NICs are shared by the node's groups."""
    alpha_intra: float
    alpha_inter: float
    overhead: float = 0.0
    """Seconds of a collective beside its hops."""
    scatter: float = 1.0
    """Seconds of a reduce-scatter relative to an all-gather."""

    @property
    def start(self) -> Number:
        """Seconds before the first byte; none for a group of one."""
        return np.where(np.asarray(self.size) > 1, self.overhead, 0.0)

    @property
    def nodes(self) -> Number:
        """Nodes that the group spans."""
        return np.ceil(self.size / self.per_node)


def groups(layout: LayoutColumns) -> dict[str, Group]:
    """Axes in rank order: tensor innermost, then context, shard, replicate, pipeline outermost.

    `data` is where gradients are reduced: context and data ranks together. Expert ranks are taken from the
    innermost ranks of tensor x context x data; `expert_data` holds one expert's replicas.
    """
    t, c, d = layout.tensor, layout.context, layout.data
    folded = np.asarray(layout.expert) > 1
    return {
        "tensor": Group(t, 1),
        "context": Group(c, t),
        "shard": Group(layout.shard * c, t),
        "replicate": Group(layout.replicate, t * c * layout.shard),
        "data": Group(d * c, t),
        "pipeline": Group(layout.pipeline, t * c * d),
        "expert": Group(layout.expert, 1),
        "expert_data": Group(np.where(folded, t, 1) * c * d / layout.expert, np.where(folded, layout.expert, t)),
    }


def tiers(group: Group, cluster: Cluster) -> Tiers:
    """Where a group's traffic runs on this cluster."""
    width = cluster.devices_per_node
    per_node = np.clip(np.floor(width / np.asarray(group.stride, dtype=float)), 1, group.size)
    reached = cluster.device.efficiency
    spanned = np.ceil(group.size / per_node)
    node = cluster.inter.bytes_per_s * cluster.nics_per_node * reached.network * spanned**-cluster.inter.congestion
    return Tiers(
        size=group.size,
        per_node=per_node,
        intra=cluster.intra.bytes_per_s * reached.link,
        inter=node * per_node / width,
        alpha_intra=cluster.intra.latency_s,
        alpha_inter=cluster.inter.latency_s,
        overhead=reached.collective_overhead_s,
        scatter=reached.scatter,
    )


def _bandwidth(t: Tiers) -> Number:
    """Bytes/s that a ring over the group reaches."""
    return np.where(t.nodes > 1, np.minimum(t.intra, t.inter), t.intra)


def _hops(t: Tiers) -> Number:
    """Seconds of latency of one walk round the ring."""
    inside = t.alpha_intra * (t.size - t.nodes)
    return inside + np.where(t.nodes > 1, t.alpha_inter * t.nodes, 0.0) - np.where(t.nodes > 1, t.alpha_inter, 0.0)


def all_gather_seconds(size: Number, t: Tiers) -> Number:
    """(n-1)(alpha + size/n/B): NCCL gathers and scatters round a ring."""
    return (t.size - 1) / t.size * size / _bandwidth(t) + _hops(t) + t.start


def _tree_hops(t: Tiers) -> Number:
    """Seconds of latency of a tree: inside the nodes once, then a binary tree over nodes."""
    return t.alpha_intra * (t.per_node - 1) + t.alpha_inter * np.ceil(np.log2(np.maximum(t.nodes, 1)))


def reduce_scatter_seconds(size: Number, t: Tiers) -> Number:
    """The same ring the other way; twice round it where the library sums everywhere (`Efficiency.scatter`)."""
    return (all_gather_seconds(size, t) - t.start) * t.scatter + t.start


def all_reduce_seconds(size: Number, t: Tiers) -> Number:
    """2(n-1)alpha + 2(n-1)/n size/B for a ring; the tree's latency where that is shorter."""
    return 2 * ((t.size - 1) / t.size * size / _bandwidth(t) + np.minimum(_hops(t), _tree_hops(t))) + t.start


def all_to_all_seconds(size: Number, t: Tiers) -> Number:
    """Each rank sends size/n to every other: the part for its own node over the link, the rest over its NIC."""
    inside = (t.per_node - 1) / t.size * size / t.intra
    across = (t.size - t.per_node) / t.size * size / np.maximum(t.inter / t.per_node, 1e-9)
    latency = np.where(t.nodes > 1, t.alpha_inter, t.alpha_intra) * np.where(np.asarray(t.size) > 1, 2.0, 0.0)
    return np.maximum(inside, np.where(t.nodes > 1, across, 0.0)) + latency + t.start


def dispatch_seconds(size: Number, chosen: int, t: Tiers) -> Number:
    """An all-to-all of tokens to `chosen` experts each, where a token crosses to another node at most once.

    With balanced routing a token visits N(1 - (1 - 1/N)^chosen) of the group's N nodes (DeepSeek-V3,
    arXiv:2412.19437 section 3.2.2, limits it further); inside a node it is copied over the fast link.
    """
    visited = t.nodes * (1 - (1 - 1 / t.nodes) ** chosen)
    crossing = visited * (t.nodes - 1) / t.nodes * size / chosen
    inside = (t.size - 1) / t.size * size / t.intra
    across = crossing / np.maximum(t.inter / t.per_node, 1e-9)
    latency = np.where(t.nodes > 1, t.alpha_inter, t.alpha_intra) * np.where(np.asarray(t.size) > 1, 2.0, 0.0)
    return np.maximum(inside, np.where(t.nodes > 1, across, 0.0)) + latency + t.start


def send_seconds(size: Number, group: Group, cluster: Cluster) -> Number:
    """One message to the next rank of the group; over the NICs' share of one device if it leaves the node."""
    t = tiers(group, cluster)
    leaves = np.asarray(group.size * group.stride) > cluster.devices_per_node
    share = cluster.nic_bytes_per_s_per_device * cluster.device.efficiency.network
    seconds = np.where(leaves, size / share + t.alpha_inter, size / t.intra + t.alpha_intra) + t.overhead
    return np.where(np.asarray(group.size) > 1, seconds, 0.0)


def incast_seconds(size: Number, workers: Number, servers: Number, bytes_per_s: Number, alpha: Number) -> Number:
    """Seconds for all workers to push `size` bytes to servers that hold size/servers each.

    A server's link carries workers x size/servers, a worker's own only size (Li et al., OSDI 2014).
    """
    busiest = np.maximum(workers / np.maximum(servers, 1), 1.0)
    return alpha + busiest * size / bytes_per_s
