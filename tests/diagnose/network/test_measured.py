"""nccl-tests among a job's files, against the links that the data sheets tell of its devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, POSSIBLE, WARNING, Finding

LOGS = Path(__file__).parents[4] / "shared" / "data" / "diagnosis" / "nccl_tests"
HEAD = (
    "# nThread 1 nGpus 1 minBytes 22020096 maxBytes 704643072 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1\n"
    "#\n# Using devices\n"
)
NAMES = (
    "#                                                              out-of-place                    in-place\n"
    "#       size         count      type   redop    root   time   algbw   busbw #wrong   time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)


H100 = "NVIDIA H100 80GB HBM3"


def output_of(nodes: int = 1, per_node: int = 8, bus: float = 457.8, wrong: int = 0, gpu: str = H100) -> str:
    """An all-reduce of 704,643,072 bytes at a bus bandwidth in GB/s: time = size · 2 (n - 1) / n / bandwidth."""
    ranks = nodes * per_node
    devices = "".join(
        f"#  Rank {rank:2} Group  0 Pid {rank} on node-{rank // per_node} device {rank % per_node:2} [0x1a] {gpu}\n"
        for rank in range(ranks)
    )
    factor = 2 * (ranks - 1) / ranks
    figures = f"{704643072 * factor / bus / 1e3:.1f}  {bus / factor:.2f}  {bus:.2f}  {wrong}"
    return f"{HEAD}{devices}{NAMES}   704643072     352321536      half     sum      -1   {figures}   {figures}\n"


def findings(folder: Path, text: str) -> tuple[Finding, ...]:
    (folder / "all_reduce_perf.log").write_text(f"+ srun all_reduce_perf -b 21M -e 672M -d half\n{text}")
    return diagnose([folder]).findings


def test_of_the_mlperf_logs_one_is_healthy_and_one_saw_no_gpu() -> None:
    if not LOGS.is_dir():
        pytest.skip("the logs are not beside this checkout")
    found = diagnose([LOGS])
    (one,) = [one for one in found.findings if one.severity != INFO]
    assert one.category == "device_mapping"
    assert all("oracle" in evidence.path for evidence in one.evidence)
    assert any("6 sizes of nccl-tests" in one for one in found.checked)
    assert any("no CUDA-capable device" in one for one in found.missing)


@pytest.mark.parametrize(
    ("bus", "category"),
    [(458.0, None), (240.0, None), (200.0, "slow_network_other"), (20.0, "p2p_acs_iommu")],  # of NVLink's 450 GB/s
)
def test_eight_h100_are_held_against_nvlink(tmp_path: Path, bus: float, category: str | None) -> None:
    found = findings(tmp_path, output_of(bus=bus))
    assert [one.category for one in found] == ([category] if category else [])
    assert all((one.severity, one.confidence) == (WARNING, POSSIBLE) for one in found)


@pytest.mark.parametrize(
    ("bus", "category"),
    [(350.0, None), (150.0, "gpudirect_rdma_off"), (90.0, "slow_network_other"), (5.0, "slow_network_wrong_transport")],
)  # of 8 NICs of 400 Gb/s: 400 GB/s
def test_two_nodes_are_held_against_their_nics(tmp_path: Path, bus: float, category: str | None) -> None:
    found = findings(tmp_path, output_of(nodes=2, bus=bus))
    assert [one.category for one in found] == ([category] if category else [])


def test_a_device_that_the_catalogue_does_not_know_is_not_judged(tmp_path: Path) -> None:
    assert findings(tmp_path, output_of(bus=1.0, gpu="NVIDIA Future 9000")) == ()


def test_wrong_data_are_a_hardware_fault(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, output_of(wrong=17))
    assert (found.category, found.confidence) == ("hardware_fault", POSSIBLE)
    assert "704,643,072 bytes" in found.cause


def test_the_json_of_nccl_tests_is_read_too(tmp_path: Path) -> None:
    half = {"time": 61000.0, "alg_bw": 11.55, "bus_bw": 20.2, "nwrong": 0}
    document = {
        "args": ["./all_reduce_perf"],
        "config": {"devices": [{"hostname": "a", "device_info": "NVIDIA H100 80GB HBM3"}] * 8},
        "results": [{"size": 704643072, "out_of_place": half, "in_place": half}],
    }
    (tmp_path / "out.json").write_text(json.dumps(document))
    found = diagnose([tmp_path])
    assert [(one.kind, one.problem) for one in found.inputs] == [("nccl-tests output", "")]
    assert [one.category for one in found.findings] == ["p2p_acs_iommu"]


@pytest.mark.parametrize(
    "document",
    [
        {"results": [{"out_of_place": 3}]}, {"results": [{"out_of_place": {}, "size": "x"}], "args": 5},
        {"results": [{"out_of_place": {"time": float("inf"), "alg_bw": 0, "bus_bw": 0}, "size": 2**80}]},
        {"results": [{"out_of_place": {"time": 1, "alg_bw": 1, "bus_bw": 1}, "size": 8}], "config": {"iterations": []}},
    ],
)  # fmt: skip
def test_a_broken_json_is_one_clear_problem(tmp_path: Path, document: object) -> None:
    (tmp_path / "out.json").write_text(json.dumps(document))
    (tmp_path / "job.log").write_text("2026-01-01 00:00:00 INFO\n")
    assert all(one.severity == INFO for one in diagnose([tmp_path]).findings)
