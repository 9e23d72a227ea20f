"""`comms` over two nodes finds what the link between them can do, and that the way inside them is faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.spec.cluster_text import parse_cluster
from tests.nodes.namespaces import PAYLOAD_SHARE, RATE


def test_the_bandwidth_between_nodes_is_the_links(measured: Path) -> None:
    cluster = parse_cluster(str(measured))
    assert (cluster.nodes, cluster.devices_per_node, cluster.nics_per_node) == (2, 2, 1)
    reached = cluster.inter.bytes_per_s * cluster.device.efficiency.network
    assert reached == pytest.approx(RATE * PAYLOAD_SHARE, rel=0.1)


def test_ranks_of_one_node_do_not_talk_over_the_link(measured: Path) -> None:
    cluster = parse_cluster(str(measured))
    assert cluster.intra.bytes_per_s > 4 * cluster.inter.bytes_per_s
