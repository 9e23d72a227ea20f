"""What was fitted becomes a cluster file that the other verbs read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.bench.comms.cluster_file import check_free, measured_cluster, toml_text, write
from meshwright.bench.comms.result import Machine, TierFit
from meshwright.cost.collectives import Group, all_gather_seconds, tiers
from meshwright.spec.cluster import Device, Efficiency
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import ClusterError, RequestError

INTRA = TierFit("intra", 4e-6, 235e9, 20e-6, 140, 0.05, 0.4, "all-reduce of 8 B on all ranks")
INTER = TierFit("inter", 12e-6, 40e9, 20e-6, 140, 0.06, 0.3, "all-reduce of 8 B on all ranks")
TWO_NODES = Machine(16, 2, "NVIDIA H100 80GB HBM3", "H100", "nccl", "16 ranks on 2 nodes, nccl")
LAPTOP = Machine(4, 1, "Some CPU", "cpu", "gloo", "4 ranks on 1 node, gloo")
MINE = Device("Some CPU", 4e9, 8e9, {"fp32": 3e10}, Efficiency(matmul=0.9, misaligned=1.0, memory=1.0))


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cluster.toml"
    write(path, text)
    return str(path)


def test_a_catalogue_device_keeps_all_but_its_links(tmp_path: Path) -> None:
    made = measured_cluster(TWO_NODES, (INTRA, INTER), None)
    usual = parse_cluster("2x8xH100")
    assert (made.nodes, made.devices_per_node) == (2, 8)
    assert made.device.peak_flops == usual.device.peak_flops
    assert (made.intra.bytes_per_s, made.intra.latency_s) == (235e9, 4e-6)
    assert (made.inter.bytes_per_s, made.inter.latency_s) == (40e9, 12e-6)
    # What all NICs of a node carry together was measured, not one of eight.
    assert made.nics_per_node == 1
    assert (made.device.efficiency.link, made.device.efficiency.network) == (1.0, 1.0)
    assert made.device.efficiency.collective_overhead_s == 20e-6
    assert parse_cluster(written(tmp_path, toml_text(made, TWO_NODES, (INTRA, INTER)))) == made


def test_the_cost_model_prices_on_it_what_was_fitted() -> None:
    """A ring over 2 nodes of 8: the node's 40 GB/s, 14 hops inside, 1 between, one start."""
    made = measured_cluster(TWO_NODES, (INTRA, INTER), None)
    told = float(all_gather_seconds(2**30, tiers(Group(16, 1), made)))
    assert told == pytest.approx(15 / 16 * 2**30 / 40e9 + 14 * 4e-6 + 12e-6 + 20e-6)


def test_a_measured_device_needs_no_catalogue(tmp_path: Path) -> None:
    machine = replace(LAPTOP, catalogue_name="")
    made = measured_cluster(machine, (INTRA,), MINE, 16e9)
    assert made.device.peak_flops == {"fp32": 3e10}
    assert made.device.memory_bytes == 4e9
    assert made.host_memory_bytes == 16e9
    assert "not measured" in made.inter.name
    assert made.warnings == ()
    assert parse_cluster(written(tmp_path, toml_text(made, machine, (INTRA,), ["a remark"]))) == made


def test_a_tier_that_was_not_measured_stays_the_catalogues() -> None:
    made = measured_cluster(TWO_NODES, (INTER,), None)
    usual = parse_cluster("2x8xH100")
    assert made.intra == usual.intra
    assert made.device.efficiency.link == usual.device.efficiency.link
    inside = measured_cluster(TWO_NODES, (INTRA,), None)
    assert (inside.inter, inside.nics_per_node) == (usual.inter, usual.nics_per_node)


def test_the_residual_is_in_the_file() -> None:
    text = toml_text(measured_cluster(LAPTOP, (INTRA,), None), LAPTOP, (INTRA,))
    first = text.splitlines()[:2]
    assert first[0].startswith("# Written by `meshwright comms`: 4 ranks on 1 node, gloo")
    assert "error 5.0 % median, 40.0 % at worst (all-reduce of 8 B on all ranks)" in first[1]
    assert "error 5.0 % median" in measured_cluster(LAPTOP, (INTRA,), None).intra.source


def test_a_device_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ClusterError, match="no device 'Fast Thing': measure it with --compute"):
        measured_cluster(replace(LAPTOP, device="Fast Thing", catalogue_name=""), (INTRA,), None)
    with pytest.raises(ClusterError, match="The device is not named"):
        measured_cluster(replace(LAPTOP, device="", catalogue_name=""), (INTRA,), None)


def test_a_file_is_overwritten_only_when_told(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    check_free(path, False)
    path.write_text("mine")
    with pytest.raises(RequestError, match="--force"):
        check_free(path, False)
    check_free(path, True)
    with pytest.raises(RequestError, match="is a folder"):
        check_free(tmp_path, True)
    with pytest.raises(RequestError, match="no folder"):
        check_free(tmp_path / "none" / "cluster.toml", False)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "cluster.toml"
    target.mkdir()
    with pytest.raises(RequestError, match="Cannot write"):
        write(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.toml"]
