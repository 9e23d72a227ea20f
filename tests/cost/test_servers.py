"""Parameter servers: bytes, incast, waiting and staleness, by hand and against simulated stragglers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost.offload import HOST_ADAM_BYTES_PER_S
from meshwright.cost.servers import (
    JITTER,
    mean_staleness,
    server_bytes,
    server_round,
    server_seconds,
    step_seconds,
    wait_seconds,
    worst_staleness,
)
from meshwright.cost.shares import RankParameters
from meshwright.spec.cluster import Cluster, Device, Efficiency, Link
from meshwright.spec.columns import columns_of, stack
from meshwright.spec.layout import Layout
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import make_workload

STATES = state_bytes(make_workload(1024, 8))
HELD = RankParameters(1e9, 0.0)
NETWORK, ALPHA, HOST_LINK = 25e9, 5e-6, 20e9


def cluster(nodes: int) -> Cluster:
    """Nodes of eight devices, a NIC for each, whose bandwidth is all reached."""
    device = Device("any", 80e9, 2e12, {"bf16": 300e12}, Efficiency(link=1.0, network=1.0))
    near, far = Link("near", 300e9, 1e-6), Link("far", NETWORK, ALPHA)
    return Cluster("c", device, nodes, 8, near, far, 8, host_link=Link("host", HOST_LINK, 1e-5))


def columns(workers: int, servers: int, staleness: int = 0) -> object:
    return columns_of(Layout(replicate=workers, servers=servers, staleness=staleness))


def test_a_worker_pushes_its_gradients_and_pulls_the_parameters() -> None:
    """A billion parameters in 16 bit: 2 GB each way; each of four servers receives a quarter of sixteen pushes."""
    moved = server_round(HELD, STATES, columns(16, 4), cluster(2))
    assert (float(moved.push), float(moved.pull), float(moved.server_in)) == (2e9, 2e9, 8e9)


def test_a_server_s_link_carries_workers_over_servers_pushes() -> None:
    moved = server_round(HELD, STATES, columns(16, 4), cluster(2))
    assert float(moved.push_seconds) == pytest.approx(ALPHA + 4 * 2e9 / NETWORK)
    assert float(moved.pull_seconds) == float(moved.push_seconds)


def test_with_as_many_servers_as_workers_a_worker_s_own_link_is_the_limit() -> None:
    assert float(server_round(HELD, STATES, columns(16, 16), cluster(2)).push_seconds) == pytest.approx(
        ALPHA + 2e9 / NETWORK
    )


def test_in_one_node_the_servers_are_behind_the_host_link() -> None:
    moved = server_round(HELD, STATES, columns(8, 8), cluster(1))
    assert float(moved.push_seconds) == pytest.approx(1e-5 + 2e9 / HOST_LINK)


def test_as_many_servers_as_workers_send_what_a_ring_sends() -> None:
    """Push and pull of G bytes against 2(d-1)/d G."""
    moved = server_round(HELD, STATES, columns(64, 64), cluster(8))
    assert float(moved.push + moved.pull) * 63 / 64 == pytest.approx(2 * 63 / 64 * 2e9)


def test_servers_hold_master_weights_moments_and_the_gradient() -> None:
    """4 + 8 + 2 bytes a parameter, over the servers; in fp32 4 + 8 + 4."""
    assert float(server_bytes(1e9, STATES, 4)) == 14e9 / 4
    assert float(server_bytes(1e9, state_bytes(make_workload(1024, 8, precision="fp32")), 4)) == 16e9 / 4


def test_a_server_that_does_not_wait_updates_for_every_push() -> None:
    in_step = server_round(HELD, STATES, columns(16, 4), cluster(2))
    free = server_round(HELD, STATES, columns(16, 4, -1), cluster(2))
    assert float(in_step.update_seconds) == pytest.approx(2 * 12e9 / 4 / HOST_ADAM_BYTES_PER_S)
    assert float(free.update_seconds) == pytest.approx(16 * float(in_step.update_seconds))


@pytest.mark.parametrize(("workers", "harmonic"), [(1, 1), (2, 1.5), (4, 25 / 12), (8, 761 / 280)])
def test_in_step_the_slowest_of_n_workers_is_waited_for(workers: int, harmonic: float) -> None:
    """The mean of the largest of n exponentials is H_n times theirs."""
    assert float(wait_seconds(2.0, workers, 0)) == pytest.approx(JITTER * 2.0 * (harmonic - 1))


def test_the_wait_is_that_of_simulated_stragglers() -> None:
    steps = (1 - JITTER) + np.random.default_rng(0).exponential(JITTER, size=(20_000, 32))
    simulated = float(np.mean(steps.max(axis=1) - 1.0))
    assert float(wait_seconds(1.0, 32, 0)) == pytest.approx(simulated, rel=0.02)


def test_nobody_waits_without_a_bound() -> None:
    assert float(wait_seconds(1.0, 64, -1)) == 0.0


@given(workers=st.integers(1, 512), staleness=st.integers(0, 64), compute=st.floats(1e-3, 1e3))
def test_a_looser_bound_never_waits_longer(workers: int, staleness: int, compute: float) -> None:
    tight, loose = (float(wait_seconds(compute, workers, s)) for s in (staleness, staleness + 1))
    assert 0 <= loose <= tight


def test_in_step_everything_follows_everything() -> None:
    moved = server_round(HELD, STATES, columns(16, 4), cluster(2))
    parts = float(moved.push_seconds + moved.update_seconds + moved.pull_seconds)
    step = float(step_seconds(1.0, 16, 0, moved))
    assert step == pytest.approx(1.0 + float(wait_seconds(1.0, 16, 0)) + parts)


@pytest.mark.parametrize("staleness", [1, 4, -1])
@pytest.mark.parametrize("compute", [1e-3, 1e3])
def test_stale_workers_step_at_the_pace_of_the_slowest_part(compute: float, staleness: int) -> None:
    """Ho et al. 2013: communication and compute overlap; so the longer of them is the step."""
    moved = server_round(HELD, STATES, columns(16, 4, staleness), cluster(2))
    busiest = max(float(moved.push_seconds), float(moved.pull_seconds), float(moved.update_seconds))
    step = float(step_seconds(compute, 16, staleness, moved))
    assert step == pytest.approx(max(compute + float(wait_seconds(compute, 16, staleness)), busiest))


def test_many_free_workers_are_bound_by_the_servers() -> None:
    """Throughput in batches a second stops growing where the servers' links are full (Downpour)."""

    def throughput(workers: int) -> float:
        moved = server_round(HELD, STATES, columns(workers, 2, -1), cluster(32))
        return workers / float(step_seconds(1.0, workers, -1, moved))

    assert throughput(256) == pytest.approx(throughput(128), rel=1e-3)


@pytest.mark.parametrize(
    ("workers", "staleness", "mean", "worst"), [(8, 0, 0, 0), (8, 3, 7, 42), (8, -1, 7, math.inf), (1, -1, 0, 0)]
)
def test_staleness_in_updates(workers: int, staleness: int, mean: float, worst: float) -> None:
    """Ho et al. 2013: at most 2s(n-1); without a bound, the n-1 others each push once meanwhile."""
    assert float(mean_staleness(workers, staleness)) == mean
    assert float(worst_staleness(workers, staleness)) == worst


def test_servers_add_what_compute_does_not_hide_and_two_flows() -> None:
    layout = columns(16, 4)
    exposed, (push, pull) = server_seconds(HELD, STATES, layout, cluster(2), 1.0)
    moved = server_round(HELD, STATES, layout, cluster(2))
    assert float(exposed) == pytest.approx(float(step_seconds(1.0, 16, 0, moved)) - 1.0)
    assert [(f.collective, f.when, float(f.count), float(f.sent)) for f in (push, pull)] == [
        ("push", "gradients", 1.0, 2e9),
        ("pull", "parameters", 1.0, 2e9),
    ]


def test_long_compute_hides_all_traffic_of_free_workers() -> None:
    assert float(server_seconds(HELD, STATES, columns(16, 16, -1), cluster(2), 1e3)[0]) == 0.0


def test_rows_without_servers_cost_nothing_and_others_what_they_cost_alone() -> None:
    layouts = [Layout(replicate=16), Layout(replicate=16, servers=4), Layout(replicate=16, servers=2, staleness=-1)]
    exposed, flows = server_seconds(HELD, STATES, stack(layouts), cluster(2), 0.5)
    alone = [float(server_seconds(HELD, STATES, columns_of(one), cluster(2), 0.5)[0]) for one in layouts]
    assert list(exposed) == pytest.approx(alone)
    assert exposed[0] == 0.0
    assert [list(flow.count) for flow in flows] == [[0, 1, 1], [0, 1, 1]]
