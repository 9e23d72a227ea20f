"""Parameter servers: workers push gradients to servers that hold the states, and pull parameters back.

In step (Li et al., OSDI 2014), a few steps apart (stale-synchronous, Ho et al., NIPS 2013), or not waiting at all
(Hogwild, arXiv:1106.5730; Downpour, Dean et al., NIPS 2012). `Layout.staleness` says which: 0, s, or -1.

Estimates, with what they assume: every worker and every server has a link like a device's share of the network, both
directions at once (in a cluster of one node, the link to the host); keys are spread evenly; a server updates at the
speed of the host's Adam; a worker's step is a fixed time and an exponential one, JITTER of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.collectives import incast_seconds
from meshwright.cost.data_parallel import Flow
from meshwright.cost.offload import HOST_ADAM_BYTES_PER_S
from meshwright.cost.shares import RankParameters
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.workload import StateBytes

JITTER = 0.05
"""Assumed share of a worker's step that varies from step to step: other processes, garbage collection, the network."""


@dataclass(frozen=True, slots=True)
class ServerRound:
    """One round of all workers with the servers; bytes and seconds, numbers or columns."""

    push: Number
    """Bytes of gradients that one worker sends."""
    pull: Number
    """Bytes of parameters that one worker receives."""
    server_in: Number
    """Bytes that one server receives from all workers."""
    push_seconds: Number
    """Until the busiest server has received everything."""
    pull_seconds: Number
    update_seconds: Number
    """A server's updates: one a round in step, else one for every push."""


def server_bytes(parameters: Number, states: StateBytes, servers: Number) -> Number:
    """Bytes that one server holds: its part of the weights, the moments and the gradient that is being summed."""
    return parameters * (_weights(states) + states.moments + states.reduce) / servers


def _weights(states: StateBytes) -> float:
    """Bytes of the copy that is updated: the master copy where there is one."""
    return states.master or states.parameter


def server_round(trained: RankParameters, states: StateBytes, layout: LayoutColumns, cluster: Cluster) -> ServerRound:
    """What one round moves, and how long its three parts take by themselves.

    A push or a pull is an incast of all workers on `servers` links (Li et al., OSDI 2014).
    """
    workers = layout.replicate
    servers = np.maximum(layout.servers, 1)
    push, pull = trained.total * states.reduce, trained.total * states.compute
    bandwidth, alpha = _link(cluster)
    updates = np.where(np.asarray(layout.staleness) == 0, 1, workers)
    moved = 2 * trained.total * (_weights(states) + states.moments) / servers
    return ServerRound(
        push=push,
        pull=pull,
        server_in=workers * push / servers,
        push_seconds=incast_seconds(push, workers, servers, bandwidth, alpha),
        pull_seconds=incast_seconds(pull, workers, servers, bandwidth, alpha),
        update_seconds=updates * moved / HOST_ADAM_BYTES_PER_S,
    )


def _link(cluster: Cluster) -> tuple[float, float]:
    """Bytes/s and latency between a worker and the servers."""
    if cluster.nodes == 1:
        return cluster.host_link.bytes_per_s, cluster.host_link.latency_s
    return cluster.nic_bytes_per_s_per_device * cluster.device.efficiency.network, cluster.inter.latency_s


def wait_seconds(compute_seconds: Number, workers: Number, staleness: Number) -> Number:
    """Mean seconds a step that a worker waits for the slowest one.

    In step: the maximum of n exponentials is the harmonic number H_n times their mean, so the wait is
    JITTER x compute x (H_n - 1). Up to s steps ahead, s + 1 steps average their jitter: divided by sqrt(s + 1), an
    approximation. Unbounded (-1): none.
    """
    ahead = np.asarray(staleness)
    wait = JITTER * compute_seconds * (_harmonic(workers) - 1)
    return np.where(ahead < 0, 0.0, wait / np.sqrt(np.maximum(ahead, 0) + 1.0))


def _harmonic(number: Number) -> Number:
    """1 + 1/2 + … + 1/n."""
    whole = np.asarray(number, dtype=np.int64)
    sums = np.cumsum(1.0 / np.arange(1, int(whole.max(initial=1)) + 1))
    return sums[np.maximum(whole, 1) - 1]


def step_seconds(compute_seconds: Number, workers: Number, staleness: Number, moved: ServerRound) -> Number:
    """Seconds of a worker's step.

    In step: the slowest worker's compute, then push, update and pull, one after the other. With any staleness these
    overlap with the next step's compute, and the slowest of the four decides (Ho et al. 2013, section 4).
    """
    compute = compute_seconds + wait_seconds(compute_seconds, workers, staleness)
    in_step = compute + moved.push_seconds + moved.update_seconds + moved.pull_seconds
    busiest = np.maximum(np.maximum(moved.push_seconds, moved.pull_seconds), moved.update_seconds)
    return np.where(np.asarray(staleness) == 0, in_step, np.maximum(compute, busiest))


def mean_staleness(workers: Number, staleness: Number) -> Number:
    """Updates of other workers between a worker's pull and its push: none in step, else n - 1 at equal speeds.

    While one worker takes a step, each of the others takes one (Zhang et al. 2016, arXiv:1511.05950).
    """
    return np.where(np.asarray(staleness) == 0, 0, np.asarray(workers) - 1)


def worst_staleness(workers: Number, staleness: Number) -> Number:
    """Most updates that a worker's view misses or has too early: 2s(n - 1), Ho et al. 2013 section 4; inf: no bound."""
    others = np.asarray(workers) - 1
    bounded = 2.0 * np.maximum(staleness, 0) * others
    return np.where((np.asarray(staleness) < 0) & (others > 0), np.inf, bounded)


def server_seconds(
    trained: RankParameters,
    states: StateBytes,
    layout: LayoutColumns,
    cluster: Cluster,
    compute_seconds: Number,
) -> tuple[Number, tuple[Flow, ...]]:
    """What servers add to a step whose compute takes `compute_seconds`, and the traffic of one worker.

    Seconds: exchange, update and waiting that compute does not hide. Zero, and no flows or flows that count zero,
    without servers. A pull's `sent` is what the worker receives.
    """
    if not np.any(np.asarray(layout.servers) > 0):
        return 0.0, ()
    on = np.where(np.asarray(layout.servers) > 0, 1.0, 0.0)
    moved = server_round(trained, states, layout, cluster)
    step = step_seconds(compute_seconds, layout.replicate, layout.staleness, moved)
    flows = (
        Flow("push", "gradients", on, moved.push, moved.push, moved.push_seconds),
        Flow("pull", "parameters", on, moved.pull, moved.pull, moved.pull_seconds),
    )
    return on * (step - compute_seconds), flows
