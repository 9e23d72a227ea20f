"""Clusters as TOML files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.spec.cluster import Cluster, Device, Efficiency, Link
from meshwright.spec.cluster_catalog import presets
from meshwright.spec.cluster_text import parse_cluster, to_toml
from meshwright.spec.cluster_toml import MOST_BYTES, read_toml
from meshwright.spec.errors import ClusterError

WHOLE = """
devices_per_node = 4
nodes = 3
nics_per_node = 2
intra = "100GB/s"

[device]
name = "X1"
memory_bytes = "48 GiB"
memory_bytes_per_s = "2 TB/s"
[device.peak_flops]
bf16 = "200T"
[device.efficiency]
link = 1.0

[inter]
bytes_per_s = "21.5 GB/s"
latency_s = "12 us"
"""


def test_a_file_may_give_every_number() -> None:
    cluster = read_toml(WHOLE)
    assert (cluster.name, cluster.devices, cluster.nics_per_node) == ("12xX1", 12, 2)
    assert cluster.device.memory_bytes == 48 * 2**30
    assert cluster.device.peak_flops == {"bf16": 200e12}
    assert cluster.device.efficiency == Efficiency(link=1.0)
    assert cluster.intra.bytes_per_s == 100e9
    assert (cluster.inter.bytes_per_s, cluster.inter.latency_s) == pytest.approx((21.5e9, 12e-6))


def test_a_file_may_start_from_a_preset_and_change_one_number() -> None:
    text = 'nodes = 2\n[device]\npreset = "A100-80GB"\nmemory_bytes = "70 GiB"\n[device.efficiency]\nmatmul = 0.5\n'
    expected = parse_cluster("16xA100-80GB")
    changed = replace(expected.device.efficiency, matmul=0.5)
    assert read_toml(text) == replace(
        expected, device=replace(expected.device, memory_bytes=70 * 2.0**30, efficiency=changed)
    )


def test_the_shortest_file_is_one_node_of_a_preset() -> None:
    assert read_toml('device = "H100"') == parse_cluster("8xH100")
    assert read_toml('device = "H100"\ndevices = 4') == parse_cluster("4xH100")
    assert read_toml('device = "H100"\ndevices = 64') == parse_cluster("64xH100")


def test_links_of_a_file_read_the_command_line_s_texts() -> None:
    text = 'device = "H100"\nnodes = 2\ninter = "4x200Gbps IB"\nintra = "nvlink3"\nhost_link = "pcie3-host"\n'
    expected = parse_cluster("16xH100", inter_node="4x200Gbps IB", intra_node="nvlink3")
    assert replace(read_toml(text), host_link=expected.host_link) == expected
    assert read_toml(text).host_link.name == "PCIe 3.0 x16"


def test_a_measured_tier_may_keep_the_preset_s_latency() -> None:
    link = read_toml('device = "H100"\nnodes = 2\n[inter]\npreset = "ib-ndr"\nbytes_per_s = 4.1e10\n').inter
    assert link == replace(parse_cluster("16xH100").inter, bytes_per_s=4.1e10)


def test_options_change_what_a_file_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(WHOLE)
    cluster = parse_cluster(str(path), devices_per_node=2, inter_node="4x100Gbps", device_memory="24 GiB")
    assert (cluster.nodes, cluster.devices_per_node, cluster.nics_per_node) == (6, 2, 4)
    assert cluster.inter.bytes_per_s == 12.5e9
    assert cluster.device.memory_bytes == 24 * 2**30
    with pytest.raises(ClusterError, match="do not fill nodes of 5"):
        parse_cluster(str(path), devices_per_node=5)


@pytest.mark.parametrize("name", presets())
def test_every_preset_survives_the_file(name: str, tmp_path: Path) -> None:
    cluster = parse_cluster(f"2x4x{name}", inter_node="100Gbps")
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(cluster))
    assert parse_cluster(str(path)) == cluster
    assert parse_cluster(to_toml(cluster)) == cluster


def test_awkward_texts_and_numbers_survive_the_file() -> None:
    device = Device('α "β"\\\t\x7f\n', 1 / 3, 1e20, {"fp32": 1.0}, Efficiency(reserved_bytes=0.0, link=1.07))
    cluster = Cluster("n = [x]", device, 1, 1, Link("a", 1e9, 0.0), Link("b", 7, 1e-7), 0.5, warnings=("ü", "#"))
    assert read_toml(to_toml(cluster)) == cluster


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("device = ", "line 1"),
        ('device = "H100"\nnodes = \n', "line 2"),
        ('device = "H100"\nnode = 2\n', "Legal: nodes"),
        ('device = "H100"\nnodes = 0\n', "whole number from 1"),
        ('device = "H100"\nnodes = 2.0\n', "whole number from 1"),
        ('device = "H100"\nnodes = true\n', "whole number from 1"),
        ('device = "H100"\ndevices = 12\n', "not whole nodes of 8"),
        ('device = "H100"\ndevices = 16\nnodes = 3\n', "not 3 nodes of 8"),
        ('device = "H1000"\n', "H100"),
        ("device = 7\n", r"\[device\] must be a table"),
        ("nodes = 2\n", "`device` is missing"),
        ("[device]\nmemory_bytes = 1e9\n", "lacks `memory_bytes_per_s`, `peak_flops`"),
        ('[device]\npreset = "H100"\nmemory = 1\n', "Legal: memory_bytes"),
        ('[device]\npreset = "H100"\nmemory_bytes = -1\n', "above 0"),
        ('[device]\npreset = "H100"\nmemory_bytes = nan\n', "above 0"),
        ('[device]\npreset = "H100"\nmemory_bytes = inf\n', "at most"),
        ('[device]\npreset = "H100"\nmemory_bytes = "80"\n', "80 GiB, 80 GB"),
        ('[device]\npreset = "H100"\n[device.peak_flops]\nbf15 = 1\n', "Legal: bf16"),
        ('[device]\npreset = "H100"\n[device.efficiency]\nmatmul = 1.5\n', "at most 1"),
        ('[device]\npreset = "H100"\n[device.efficiency]\nmatmal = 0.5\n', "Legal: matmul"),
        ('device = "H100"\n[inter]\nbandwidth = 1\n', "unknown key 'bandwidth'"),
        ('device = "H100"\n[inter]\nbytes_per_s = 1\n', "lacks `latency_s`"),
        ('device = "H100"\n[inter]\npreset = "nvlink4"\n', "no link is called 'nvlink4'"),
        ('device = "H100"\ninter = "100 parsec"\n', "inter: "),
        ('device = "H100"\ninter = 5\n', "a text or a table"),
        ('device = "H100"\nname = ""\n', "name must be a text"),
        ('device = "H100"\nwarnings = "none"\n', "list of texts"),
        ('device = "H100"\nnics_per_node = ' + "9" * 5000, "broken TOML|thousands of digits"),
        ("a = " + "[" * 5000, "broken TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_place_and_legal_values(text: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message) as error:
        read_toml(text, "mine.toml")
    assert str(error.value).startswith("mine.toml: ")


def test_a_missing_file_a_folder_and_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="No such file"):
        parse_cluster(str(tmp_path / "absent.toml"))
    with pytest.raises(ClusterError, match="directory"):
        parse_cluster(str(tmp_path) + "/")
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"device = \xff")
    with pytest.raises(ClusterError, match="not UTF-8"):
        parse_cluster(str(path))
    with pytest.raises(ClusterError, match="Cannot read"):
        parse_cluster("nul\0.toml")


def test_a_huge_file_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    path.write_text('device = "H100"\n' + "#" * MOST_BYTES)
    with pytest.raises(ClusterError, match="at most 256 KiB"):
        parse_cluster(str(path))
