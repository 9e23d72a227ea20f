"""The published runs' own words for device and interconnect."""

from __future__ import annotations

import pytest

from meshwright.catalog.cluster_files import device_tables
from meshwright.catalog.run_files import read_runs_table
from meshwright.spec.cluster_catalog import presets
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import ClusterError
from meshwright.spec.run_links import cluster_of_run, device_of_run, link_of_run

DEVICES = {
    "A100": "A100-80GB",
    "A100-40GB": "A100-40GB",
    "A100-80GB": "A100-80GB",
    "A100-SXM (DGX A100)": "A100-80GB",
    "A100-SXM-40GB (DGX-A100)": "A100-40GB",
    "A100-SXM-80GB": "A100-80GB",
    "A100-SXM4-80GB": "A100-80GB",
    "B200": "B200",
    "B200 (power limited)": "B200",
    "B200-SXM": "B200",
    "B200-SXM-180GB": "B200",
    "B300": "B300",
    "GB200": "GB200",
    "GB300": "GB300",
    "H100": "H100",
    "H100-80GB": "H100",
    "H100-SXM-80GB": "H100",
    "H100-SXM-94GB-HBM2e": "H100-96GB-HBM2e-500W",
    "H100-SXM-96GB-HBM2e-500W": "H100-96GB-HBM2e-500W",
    "H200-SXM-141GB": "H200",
    "MI300X": "MI300X",
    "MI355X-288GB": "MI355X",
    "SM100 ~184 GiB (B200/GB200 class, not named)": "GB200",
    "V100-16GB": "V100-16GB",
    "V100-32GB": "V100-32GB",
    "V100-SXM-16GB": "V100-16GB",
    "V100-SXM-32GB": "V100-32GB",
    "V100-SXM-32GB (DGX-2)": "V100-32GB",
    "V100-SXM2-16GB": "V100-16GB",
    "V100-SXM2-32GB": "V100-32GB",
}
NETWORKS = {
    # words, devices a node: NICs a node, Gb/s a NIC; None: nothing stated
    ("", 8): None,
    ("1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)", 8): (8, 400),
    ("400 Gb/s RoCE per GPU", 8): (8, 400),
    ("4x ConnectX-7 IB NDR 400Gb/s", 4): (4, 400),
    ("4x Omni-Path 100Gb/s per node", 8): (4, 100),
    ("4x100Gb RoCE per node", 8): (4, 100),
    ("800 Gb/s per node (vTrain config)", 8): (8, 100),
    ("8x ConnectX-7 IB NDR 400Gb/s + 200Gb/s Ethernet NIC", 8): (8, 400),
    ("8x HDR InfiniBand 200Gb/s per node (Selene)", 8): (8, 200),
    ("8x200Gb/s HDR IB (NDm A100 v4)", 8): (8, 200),
    ("InfiniBand 8x50GB/s per node", 8): (8, 400),
    (
        "Management: 1x Bluefield-2 DPU Ethernet 100Gb/Sec, Compute: 8x ConnectX-7 InfiniBand NDR 400Gb/Sec",
        8,
    ): (8, 400),
    ("NVL72", 4): None,
    ("NVLink72/IB (not stated)", 4): None,
    ("Omni-Path (OPA)", 4): (4, 100),
    ("RDMA 400Gb/s CX-7 per GPU", 8): (8, 400),
    ("RDMA 400Gb/s per GPU", 8): (8, 400),
    ("ROCE2; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", 8): None,
    ("RoCE 1600 Gb/s per node", 8): (8, 200),
    (
        "Storage+Management: 1x NVIDIA BlueField 2 DPU 100Gb/s, Compute: 8x NVIDIA ConnectX-7 IB NDR 400Gb/s",
        8,
    ): (8, 400),
    (
        "Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s, "
        "Management: 100Gb/s Ethernet NIC",
        8,
    ): (8, 400),
}
INSIDE = {
    "": None,
    "NVLINK 4.0": None,
    "NVLINK Gen4 900 GB/s + NVSWITCH Gen3": 450e9,
    "NVLINK Gen5 1800 GB/s + NVSWITCH Gen5": 900e9,
    "NVLink": None,
    "NVLink (p3.16xlarge)": None,
    "NVLink2": None,
    "NVLink3/NVSwitch": None,
    "NVLink4": None,
    "NVLink5/NVSwitch": None,
    "NVSwitch": None,
}


def column(name: str) -> set[str]:
    header, rows = read_runs_table()
    return {cells[header.index(name)] for _, cells in rows}


@pytest.mark.parametrize("gpu", DEVICES)
def test_a_run_s_device_is_found(gpu: str) -> None:
    assert device_of_run(gpu) == DEVICES[gpu]


def test_the_expected_values_cover_the_published_runs() -> None:
    assert column("gpu") <= set(DEVICES)
    assert column("inter_link") <= {words for words, _ in NETWORKS}
    assert column("intra_link") <= set(INSIDE)


def test_an_unknown_device_is_none_and_as_a_cluster_an_error() -> None:
    assert device_of_run("Gaudi 2") is None
    with pytest.raises(ClusterError, match="Gaudi 2"):
        cluster_of_run("Gaudi 2", 8, 8)


def test_spellings_of_runs_name_devices_of_the_catalogue() -> None:
    assert set(device_tables()["runs"].values()) <= set(presets())


@pytest.mark.parametrize(("words", "per_node"), NETWORKS)
def test_a_run_s_network_is_read_as_far_as_it_states_numbers(words: str, per_node: int) -> None:
    stated = link_of_run(words, per_node).inter_node
    expected = NETWORKS[words, per_node]
    if expected is None:
        assert stated is None
        return
    cluster = parse_cluster(f"2x{per_node}xH100", inter_node=stated)
    assert (cluster.nics_per_node, cluster.inter.bytes_per_s * 8 / 1e9) == pytest.approx(expected)
    assert cluster.warnings == ()


@pytest.mark.parametrize("words", INSIDE)
def test_nvlink_figures_are_both_directions_together(words: str) -> None:
    stated = link_of_run("", 8, words).intra_node
    expected = INSIDE[words]
    if expected is None:
        assert stated is None
    else:
        assert parse_cluster("8xH100", intra_node=stated).intra.bytes_per_s == expected


def test_a_run_over_pcie_has_no_nvlink() -> None:
    assert cluster_of_run("H100-SXM-80GB", 8, 8, "PCIe").intra.name == "PCIe 5.0 x16"


def test_racks_join_more_devices_than_a_tray() -> None:
    cluster = cluster_of_run("GB200", 256, 4, "", "4x ConnectX-7 IB NDR 400Gb/s")
    assert (cluster.nodes, cluster.devices_per_node, cluster.nics_per_node) == (4, 64, 64)
    assert cluster.nic_bytes_per_s_per_device == pytest.approx(50e9)
    assert cluster_of_run("GB300", 8, 4).nodes == 1


def test_every_published_run_has_a_cluster_of_its_devices() -> None:
    header, rows = read_runs_table()
    names = ("gpu", "gpus", "gpus_per_node", "intra_link", "inter_link")
    runs = {tuple(cells[header.index(name)] for name in names) for _, cells in rows}
    assert len(runs) > 100
    for gpu, gpus, per_node, intra, inter in runs:
        cluster = cluster_of_run(gpu, int(gpus), int(per_node) if per_node else None, intra, inter)
        assert cluster.devices == int(gpus)
        assert cluster.device.name == DEVICES[gpu]
