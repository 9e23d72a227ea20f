"""Clusters from text and options."""

from __future__ import annotations

import pytest

from meshwright.spec.cluster_text import list_devices, parse_cluster
from meshwright.spec.errors import ClusterError


@pytest.mark.parametrize(
    ("text", "device", "nodes", "per_node"),
    [
        ("8xA100-40GB", "A100-40GB", 1, 8),
        ("64xH100", "H100", 8, 8),
        ("2x8xH100", "H100", 2, 8),
        ("512xA100-80GB-SXM", "A100-80GB", 64, 8),
        ("512 × a100_sxm4_80gb", "A100-80GB", 64, 8),
        ("72xGB200", "GB200", 1, 72),
        ("4xcpu", "cpu", 1, 4),
        ("cpu", "cpu", 1, 1),
        ("H200", "H200", 1, 1),
        ("8*NVIDIA GeForce RTX 4090", "RTX-4090", 1, 8),
        ("3XMI300X", "MI300X", 1, 3),
        ("4x2xMI250X", "MI250X", 4, 2),
        ("8xH100 PCIe 80GB", "H100-PCIe", 1, 8),
        ("64xTPU-v5p", "TPU-v5p", 1, 64),
    ],
)
def test_text_names_device_nodes_and_devices_a_node(text: str, device: str, nodes: int, per_node: int) -> None:
    cluster = parse_cluster(text)
    assert (cluster.device.name, cluster.nodes, cluster.devices_per_node) == (device, nodes, per_node)


def test_fewer_devices_than_a_node_are_one_smaller_node() -> None:
    cluster = parse_cluster("3xH100")
    assert (cluster.nodes, cluster.devices_per_node, cluster.devices) == (1, 3, 3)


def test_an_a100_of_unsaid_size_is_the_80_gb_sxm_part_and_says_so() -> None:
    cluster = parse_cluster("8xA100")
    assert cluster.device.name == "A100-80GB"
    assert any("40 and 80 GB" in warning for warning in cluster.warnings)
    assert parse_cluster("8xA100-80GB").warnings == ()


def test_an_mi250x_is_one_die_and_says_so() -> None:
    cluster = parse_cluster("8xMI250X")
    assert cluster.device.memory_bytes < 65 * 2**30
    assert any("die" in warning for warning in cluster.warnings)


def test_twelve_devices_do_not_fill_nodes_of_eight() -> None:
    with pytest.raises(ClusterError) as error:
        parse_cluster("12xH100")
    nodes = tuple(f"--devices-per-node {n}" for n in (6, 4, 3))
    assert error.value.legal == (*nodes, "8xH100", "16xH100")


def test_devices_per_node_may_make_them_fit() -> None:
    cluster = parse_cluster("12xH100", devices_per_node=6)
    assert (cluster.nodes, cluster.devices_per_node) == (2, 6)
    assert cluster.nics_per_node == 6


def test_a_node_of_a_rack_has_the_hosts_of_the_rack() -> None:
    rack, tray = parse_cluster("72xGB200"), parse_cluster("4xGB200")
    assert rack.nics_per_node == 72
    assert rack.host_memory_bytes == 18 * tray.host_memory_bytes
    assert rack.host_memory_bytes == pytest.approx(36 * 480e9, rel=1e-3)  # 36 Grace with 480 GB each


def test_gb200_cut_into_trays_warns_that_nvlink_goes_further() -> None:
    cluster = parse_cluster("8xGB200", devices_per_node=4)
    assert cluster.nodes == 2
    assert any("joins 72" in warning for warning in cluster.warnings)


@pytest.mark.parametrize(
    ("option", "nics", "gbps"),
    [
        ("100Gbps", 1, 100),
        ("4x200Gbps", 4, 200),
        ("8 x 400 Gb/s NDR", 8, 400),
        ("400Gbps IB", 1, 400),
        ("25GB/s", 1, 200),
        ("ib-hdr", 8, 200),
        ("InfiniBand NDR", 8, 400),
        ("4xib-ndr", 4, 400),
        ("roce_400g", 8, 400),
        ("Ethernet-100G", 1, 100),
        ("efa-p4d", 4, 100),
        ("OPA", 8, 100),
    ],
)
def test_the_network_between_nodes(option: str, nics: float, gbps: float) -> None:
    cluster = parse_cluster("16xA100-40GB", inter_node=option)
    assert cluster.nics_per_node == nics
    assert cluster.inter.bytes_per_s * 8 == pytest.approx(gbps * 1e9)


def test_a_speed_without_a_count_is_the_node_s_and_says_so() -> None:
    cluster = parse_cluster("16xA100-40GB", inter_node="100Gbps")
    assert cluster.nic_bytes_per_s_per_device == pytest.approx(12.5e9 / 8)
    assert any("8x100Gbps" in warning for warning in cluster.warnings)
    counted = parse_cluster("16xA100-40GB", inter_node="100Gbps", nics_per_node=8)
    assert counted.nic_bytes_per_s_per_device == pytest.approx(12.5e9)
    assert counted.warnings == ()


def test_infiniband_answers_sooner_than_ethernet() -> None:
    infiniband = parse_cluster("16xH100", inter_node="100Gbps IB").inter
    ethernet = parse_cluster("16xH100", inter_node="100Gbps Ethernet").inter
    assert infiniband.bytes_per_s == ethernet.bytes_per_s
    assert infiniband.latency_s < ethernet.latency_s


def test_the_link_inside_a_node() -> None:
    assert parse_cluster("8xA100-40GB", intra_node="NVLink4").intra.bytes_per_s == 450e9
    assert parse_cluster("8xA100-40GB", intra_node="300GB/s").intra.bytes_per_s == 300e9
    assert parse_cluster("8xA100-40GB", intra_node="PCIe").intra.name == "PCIe 4.0 x16"
    assert parse_cluster("8xH100", intra_node="pcie").intra.name == "PCIe 5.0 x16"


def test_device_memory_tells_gb_from_gib() -> None:
    assert parse_cluster("cpu", device_memory="40 GiB").device.memory_bytes == 40 * 2**30
    assert parse_cluster("cpu", device_memory="40GB").device.memory_bytes == 40e9


@pytest.mark.parametrize(
    ("text", "near"),
    [("8xA200", "H200"), ("8xH10", "H100"), ("MI350X", "MI355X"), ("8xV100-64GB", "V100-16GB"), ("TPU-v6", "TPU-v4")],
)
def test_an_unknown_device_is_answered_with_near_names(text: str, near: str) -> None:
    with pytest.raises(ClusterError, match="No device is called") as error:
        parse_cluster(text)
    assert near in error.value.legal


@pytest.mark.parametrize(
    "text",
    (
        "| |8x|x|0xH100|-8xH100|8.5xH100|1e9xH100|nanxH100|infxH100|0x8xH100|2x3x4xH100|1048576x8xH100|1,024xH100|"
        "８xH100|H100x8|8xH100x|" + "9" * 5000 + "xH100"
    ).split("|"),
)
def test_an_impossible_cluster_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ClusterError) as error:
        parse_cluster(text)
    assert error.value.legal
    assert len(str(error.value)) < 900


@pytest.mark.parametrize("value", [0, -1, True, 2.0])
def test_devices_per_node_is_a_whole_number_from_1(value: int) -> None:
    with pytest.raises(ClusterError, match="whole number"):
        parse_cluster("8xH100", devices_per_node=value)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_nics_per_node_is_finite_and_above_0(value: float) -> None:
    with pytest.raises(ClusterError, match="NICs per node"):
        parse_cluster("8xH100", nics_per_node=value)


@pytest.mark.parametrize(
    "option", ["", "0x100Gbps", "100", "100G", "25gb/s", "fast", "0Gbps", "100Gbps carrier", "ib-hdd"]
)
def test_an_unreadable_network_is_refused_with_legal_ones(option: str) -> None:
    with pytest.raises(ClusterError) as error:
        parse_cluster("16xH100", inter_node=option)
    assert error.value.legal


@pytest.mark.parametrize("options", [{"intra_node": "NVLink"}, {"intra_node": "25gb/s"}, {"device_memory": "80"}])
def test_other_unreadable_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ClusterError):
        parse_cluster("16xH100", **options)


def test_shape_and_option_must_agree() -> None:
    assert parse_cluster("2x4xH100", devices_per_node=4).devices == 8
    with pytest.raises(ClusterError, match="4 devices a node, the option says 8"):
        parse_cluster("2x4xH100", devices_per_node=8)


@pytest.mark.parametrize("text", ["2x8xH100", "2x4xH100", "8xA100", "144xGB200", "2x64xGB200", "cpu", "16xV100-16GB"])
def test_a_cluster_s_name_reads_back_as_the_same_shape(text: str) -> None:
    first = parse_cluster(text)
    again = parse_cluster(first.name)
    assert (again.nodes, again.devices_per_node, again.device) == (first.nodes, first.devices_per_node, first.device)


def test_every_listed_device_can_be_asked_for_in_any_case() -> None:
    listed = list_devices()
    assert len(listed) >= 30
    for summary in listed:
        for text in (summary.name, summary.name.lower(), f"2x{summary.name.replace('-', '_')}"):
            assert parse_cluster(text).device.name == summary.name
        assert summary.source
