"""What a job's collectives reach, beside nccl-tests on the same machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO
from tests.diagnose.traces.made import Made


def file_of(bus: float) -> str:
    """nccl-tests' JSON of an all-reduce of 128 MB over two ranks, whose bus bandwidth (GB/s) is size over time."""
    half = {"time": 128e6 / bus / 1e3, "alg_bw": bus, "bus_bw": bus, "nwrong": 0}
    devices = [{"hostname": "a", "device_info": "NVIDIA A100-SXM4-80GB"}] * 2
    return json.dumps(
        {
            "args": ["./all_reduce_perf"],
            "config": {"devices": devices, "iterations": 20},
            "results": [{"size": 128_000_000, "out_of_place": half, "in_place": half}],
        }
    )


@pytest.mark.parametrize(("measured", "named"), [(15.0, False), (25.0, True)])
def test_a_job_below_half_of_what_was_measured_is_told(measured: float, named: bool, tmp_path: Path) -> None:
    for rank in range(2):
        made = Made(rank, 2)
        for step in range(4):
            made.step(step, 200.0 * step, 198)
            made.kernel("gemm", 200.0 * step + 1, 150)
            made.collective("allreduce", 200.0 * step + 160, 10, 100e6)  # 10 GB/s
        made.save(tmp_path)
    (tmp_path / "nccl.json").write_text(file_of(measured))
    found = [one for one in diagnose([tmp_path]).findings if one.severity != INFO and "in the job" in one.cause]
    assert [one.category for one in found] == (["slow_network_other"] if named else [])
    assert all("10.0 GB/s on the bus in the job and 25.0 GB/s in nccl-tests" in one.cause for one in found)
