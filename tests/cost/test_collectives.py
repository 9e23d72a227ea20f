"""Collectives: laws of the alpha-beta model, hand calculations on two tiers, and public nccl-tests results."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost.collectives import (
    Group,
    Tiers,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    groups,
    incast_seconds,
    reduce_scatter_seconds,
    send_seconds,
    tiers,
)
from meshwright.spec.cluster import Cluster, Device, Efficiency, Link
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.columns import columns_of, stack
from meshwright.spec.layout import Layout

NEAR, FAR = 300e9, 25e9
ALPHA_NEAR, ALPHA_FAR = 3e-6, 8e-6
COLLECTIVES = (all_gather_seconds, reduce_scatter_seconds, all_reduce_seconds, all_to_all_seconds)
MIB = 2**20


def cluster(nodes: int = 16, per_node: int = 8, nics: float = 8, congestion: float = 0.0) -> Cluster:
    """Nodes whose links reach all of their bandwidth."""
    device = Device("any", 80e9, 2e12, {"bf16": 300e12}, Efficiency(link=1.0, network=1.0, collective_overhead_s=0.0))
    far = Link("far", FAR, ALPHA_FAR, congestion=congestion)
    return Cluster("c", device, nodes, per_node, Link("near", NEAR, ALPHA_NEAR), far, nics)


def links(size: int, stride: int = 1, **of: float) -> Tiers:
    return tiers(Group(size, stride), cluster(**of))  # type: ignore[arg-type]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("stride", [1, 8])
def test_one_rank_has_nothing_to_say(collective: object, stride: int) -> None:
    assert float(collective(1e9, links(1, stride))) == 0.0  # type: ignore[operator]


def test_one_rank_sends_nothing() -> None:
    assert float(send_seconds(1e9, Group(1, 8), cluster())) == 0.0


sizes = st.floats(1.0, 1e11)
degrees = st.sampled_from([2**k for k in range(8)])


@given(small=sizes, factor=st.floats(1.0, 1e3), ranks=degrees, stride=st.sampled_from([1, 2, 4, 8, 16]))
def test_more_bytes_never_take_less_time(small: float, factor: float, ranks: int, stride: int) -> None:
    t = links(ranks, stride)
    for collective in COLLECTIVES:
        assert float(collective(small * factor, t)) >= float(collective(small, t))


@given(size=sizes, ranks=degrees, stride=st.sampled_from([1, 2, 4, 8, 16]))
def test_more_ranks_never_reduce_or_gather_faster(size: float, ranks: int, stride: int) -> None:
    for collective in (all_gather_seconds, all_reduce_seconds):
        assert float(collective(size, links(2 * ranks, stride))) >= float(collective(size, links(ranks, stride)))


@given(size=sizes, ranks=degrees, stride=st.sampled_from([1, 8]))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather_unless_a_tree_is_quicker(
    size: float, ranks: int, stride: int
) -> None:
    t = links(ranks, stride)
    both = float(reduce_scatter_seconds(size, t)) + float(all_gather_seconds(size, t))
    assert float(all_reduce_seconds(size, t)) <= both * (1 + 1e-12)
    if float(t.nodes) == 1:
        assert float(all_reduce_seconds(size, t)) == pytest.approx(both)


def test_ring_inside_a_node_by_hand() -> None:
    """Seven hops of 3 us and seven eighths of 800 MB at 300 GB/s."""
    assert float(all_gather_seconds(800e6, links(8))) == pytest.approx(7 * 3e-6 + 700e6 / 300e9)


def test_a_ring_over_whole_nodes_runs_at_the_speed_of_all_their_nics() -> None:
    """16 ranks on two nodes: the eight NICs of a node carry the ring, 200 GB/s, less than NVLink's 300."""
    seconds = float(all_gather_seconds(1.6e9, links(16)))
    assert seconds == pytest.approx(15 / 16 * 1.6e9 / 200e9 + 14 * ALPHA_NEAR + ALPHA_FAR)


def test_nvlink_bounds_a_ring_whose_network_is_faster() -> None:
    seconds = float(all_gather_seconds(1.6e9, links(16, nics=64)))
    assert seconds == pytest.approx(15 / 16 * 1.6e9 / NEAR + 14 * ALPHA_NEAR + ALPHA_FAR)


@pytest.mark.parametrize(("stride", "share"), [(1, 1), (2, 2), (4, 4), (8, 8)])
def test_concurrent_groups_of_a_node_share_its_nics(stride: int, share: int) -> None:
    """`stride` groups, each with 8 / stride members a node: eight of them see an eighth of the NICs each."""
    assert links(64, stride).inter == pytest.approx(8 * FAR / share)


def test_a_tree_between_nodes_has_logarithmic_latency() -> None:
    """One rank in each of 128 nodes: 127 hops round the ring, 7 up a tree and 7 down."""
    t = links(128, stride=8, nodes=128)
    assert float(all_gather_seconds(0.0, t)) == pytest.approx(127 * ALPHA_FAR)
    assert float(all_reduce_seconds(0.0, t)) == pytest.approx(2 * 7 * ALPHA_FAR)


def test_a_tree_over_whole_nodes_walks_each_node_once() -> None:
    """16 nodes of eight: seven hops in the node and four between nodes, up and down."""
    assert float(all_reduce_seconds(0.0, links(128))) == pytest.approx(2 * (7 * ALPHA_NEAR + 4 * ALPHA_FAR))


def test_two_nodes_of_one_rank_are_one_hop_apart() -> None:
    assert float(all_gather_seconds(0.0, links(2, stride=8))) == pytest.approx(ALPHA_FAR)


def test_all_to_all_inside_a_node_sends_all_but_its_own_part() -> None:
    assert float(all_to_all_seconds(800e6, links(8))) == pytest.approx(700e6 / NEAR + 2 * ALPHA_NEAR)


def test_all_to_all_over_nodes_is_bound_by_a_device_s_own_nic() -> None:
    """32 ranks on four nodes: 24/32 of the bytes leave the node, over one 25 GB/s NIC a device."""
    assert float(all_to_all_seconds(3.2e9, links(32))) == pytest.approx(2.4e9 / FAR + 2 * ALPHA_FAR)


@pytest.mark.parametrize(
    ("group", "seconds"),
    [
        (Group(2, 1), 1e9 / NEAR + ALPHA_NEAR),
        (Group(8, 1), 1e9 / NEAR + ALPHA_NEAR),
        (Group(2, 8), 1e9 / FAR + ALPHA_FAR),
        (Group(4, 4), 1e9 / FAR + ALPHA_FAR),
    ],
)
def test_a_send_leaves_the_node_when_its_group_does(group: Group, seconds: float) -> None:
    assert float(send_seconds(1e9, group, cluster())) == pytest.approx(seconds)


def test_devices_share_the_node_s_nics_when_all_send() -> None:
    assert float(send_seconds(1e9, Group(2, 8), cluster(nics=2))) == pytest.approx(1e9 / (2 * FAR / 8) + ALPHA_FAR)


def test_a_congested_network_slows_with_the_number_of_nodes() -> None:
    """Congestion 0.5: four nodes reach half of the bandwidth, sixteen a quarter."""
    assert [links(8 * n, congestion=0.5).inter / (8 * FAR) for n in (1, 4, 16)] == pytest.approx([1, 0.5, 0.25])


@pytest.mark.parametrize(
    ("workers", "servers", "busiest"), [(8, 1, 8), (8, 2, 4), (8, 8, 1), (8, 16, 1), (1, 1, 1), (7, 2, 3.5)]
)
def test_incast_is_as_slow_as_the_busiest_link(workers: int, servers: int, busiest: float) -> None:
    """A server's link carries workers/servers pushes, a worker's own one."""
    seconds = float(incast_seconds(1e9, workers, servers, 10e9, 1e-5))
    assert seconds == pytest.approx(1e-5 + busiest * 1e9 / 10e9)


def test_axes_lie_in_rank_order() -> None:
    """tp2 cp2 fsdp4 x 2 replicas, pp2: strides are the product of the axes inside."""
    axes = groups(columns_of(Layout(tensor=2, context=2, shard=4, replicate=2, zero_stage=3, pipeline=2)))
    assert {name: (int(axes[name].size), int(axes[name].stride)) for name in ("tensor", "context", "pipeline")} == {
        "tensor": (2, 1),
        "context": (2, 2),
        "pipeline": (2, 32),
    }
    # states are shared, and gradients averaged, over context ranks too
    assert (int(axes["shard"].size), int(axes["replicate"].stride), int(axes["data"].size)) == (8, 16, 16)


def test_expert_ranks_come_from_the_innermost_ranks() -> None:
    axes = groups(columns_of(Layout(tensor=2, shard=8, zero_stage=3, expert=4)))
    assert (int(axes["expert"].size), int(axes["expert"].stride)) == (4, 1)
    assert int(axes["expert_data"].size) * 4 == 16


def test_columns_price_like_single_layouts() -> None:
    layouts = [Layout(replicate=n, tensor=t) for n, t in ((1, 1), (2, 8), (16, 8), (64, 2))]
    together = tiers(groups(stack(layouts))["data"], cluster())
    alone = [tiers(groups(columns_of(layout))["data"], cluster()) for layout in layouts]
    for collective in COLLECTIVES:
        assert np.asarray(collective(1e9, together)) == pytest.approx([float(collective(1e9, t)) for t in alone])


# Public nccl-tests results: bytes and seconds of an all-reduce (busbw 223 to 229, 232, 366, 385 GB/s).
MEASURED = {
    # VIA-Research/vTrain@f8dda8473a, trace/a100/AR_GPU8_1M_1024M_LUT
    "8 A100, vTrain": ("8xA100-80GB", 8, 0.15, [(889192448, 6853.1), (973078528, 7450.1), (1073741824, 8193.0)]),
    # Azure/AI-benchmarking-guide@8fd0c6e1bd, ND_A100_v4_results.md L101 to L105
    "8 A100, Azure": ("8xA100-80GB", 8, 0.15, [(536870912, 4240.1), (2147483648, 16323.9), (8589934592, 64912.3)]),
    # stas00/ml-engineering@744d01e18b, network/README.md L929 and L979, NVLS off
    "8 H200 without NVLS": ("8xH200", 8, 0.20, [(8589934592, 41117.0), (17179869184, 81875.7)]),
    # NVIDIA/dgxc-benchmarking@db1b14c466, nccl/README.md L79 to L83. The switches add (NVLS), which no ring can do:
    # the estimate is for the ring and stays a third or more above.
    "8 H100 with NVLS": ("8xH100", 8, 0.50, [(1073741824, 4029.4), (4294967296, 15749.0), (17179869184, 62648.0)]),
    # coreweave/nccl-tests@cb86553328, README.md L150 to L153. Twelve nodes; the network adds (SHARP).
    "96 H100, CoreWeave": ("96xH100", 96, 0.25, [(1073741824, 5808.0), (4294967296, 22181.0), (8589934592, 43980.0)]),
}


@pytest.mark.parametrize("name", MEASURED)
def test_large_measured_all_reduces_are_met_within_the_stated_median_error(name: str) -> None:
    text, ranks, error, rows = MEASURED[name]
    t = tiers(groups(columns_of(Layout(replicate=ranks)))["data"], parse_cluster(text))
    deviations = [abs(float(all_reduce_seconds(size, t)) / (us * 1e-6) - 1) for size, us in rows]
    assert median(deviations) <= error


@pytest.mark.parametrize(
    ("size", "microseconds"),
    # stas00/ml-engineering@744d01e18b, network/README.md L980 and L981: 16 GiB all-gather and reduce-scatter
    [(16384 * MIB, 41594.9), (16384 * MIB, 41422.9)],
)
def test_measured_gather_and_scatter_of_8_h200(size: int, microseconds: float) -> None:
    t = tiers(groups(columns_of(Layout(replicate=8)))["data"], parse_cluster("8xH200"))
    assert float(all_gather_seconds(size, t)) == pytest.approx(microseconds * 1e-6, rel=0.2)
