"""Layouts whose traffic crosses nodes, and the fabric measured without NCCL."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, POSSIBLE, Finding


def findings(folder: Path, text: str) -> list[Finding]:
    (folder / "job.log").write_text(f"2026-01-01 00:00:00 INFO\n{text}")
    return list(diagnose([folder]).findings)


@pytest.mark.parametrize(("tensor", "per_node", "bound"), [(16, 8, True), (8, 8, False), (4, 8, False), (8, 4, True)])
def test_tensor_parallelism_wider_than_a_node_crosses_the_network(
    tmp_path: Path, tensor: int, per_node: int, bound: bool
) -> None:
    command = f"torchrun --nnodes=4 --nproc-per-node={per_node} pretrain_gpt.py --tensor-model-parallel-size {tensor}\n"
    found = findings(tmp_path, command)
    assert [(one.category, one.confidence) for one in found] == ([("tp_comm_bound", POSSIBLE)] if bound else [])


def test_the_nvlink_of_a_rack_spans_hosts(tmp_path: Path) -> None:
    text = "torchrun --nnodes=4 --nproc-per-node=4 pretrain_gpt.py --tensor-model-parallel-size 8  # GB200 NVL72\n"
    assert findings(tmp_path, text) == []


def test_zero_3_over_nodes_is_told_and_hpz_is_not(tmp_path: Path) -> None:
    text = "deepspeed --nnodes 2 train.py\n[INFO] [config.py:1000:print] zero_optimization_stage ...... 3\n"
    (found,) = findings(tmp_path, text)
    assert (found.category, found.severity, found.confidence) == ("zero3_internode", INFO, POSSIBLE)
    assert findings(tmp_path, f"{text}  zero_hpz_partition_size=8\n") == []


def perftest(device: str, gbits: float) -> str:
    """As ib_write_bw --report_gbits prints it (linux-rdma/perftest#273)."""
    return (
        "                    RDMA_Write BW Test\n"
        f" Dual-port       : OFF\t\tDevice         : {device}\n Number of qps   : 1\t\tTransport type : IB\n"
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        f" 65536      5000             0.00               {gbits:.2f}              0.373\n"
    )


def test_a_nic_at_half_its_rate_is_named(tmp_path: Path) -> None:
    text = "".join(perftest(f"mlx5_{at}", 196.0 if at == 2 else 392.0) for at in range(4))
    (found,) = findings(tmp_path, text)
    assert (found.category, found.confidence) == ("slow_network_other", POSSIBLE)
    assert found.cause.startswith("mlx5_2 reaches 24.5 GB/s")


def test_equal_nics_are_healthy(tmp_path: Path) -> None:
    assert findings(tmp_path, "".join(perftest(f"mlx5_{at}", 390.0 + at) for at in range(4))) == []


def test_nccl_far_below_what_the_nics_reach_is_no_fault_of_the_fabric(tmp_path: Path) -> None:
    # Two nodes of 8, 8 NICs of 49 GB/s; an all-reduce of 1 GiB at 100 GB/s of bus bandwidth.
    ranks, seconds = 16, 2**30 * 2 * 15 / 16 / 100e9
    devices = "".join(
        f"#  Rank {rank:2} Group  0 Pid {rank} on node-{rank // 8} device {rank % 8} [0x1a] Some GPU\n"
        for rank in range(ranks)
    )
    figures = f"{seconds * 1e6:.1f} {2**30 / seconds / 1e9:.2f} 100.00 0"
    text = "".join(perftest(f"mlx5_{at}", 392.0) for at in range(8)) + (
        f"# nThread 1 nGpus 1 minBytes 8 maxBytes 8 iters: 20\n{devices}"
        "#  size  count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        "#  (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n"
        f"{2**30} {2**28} float sum -1 {figures} {figures}\n"
    )
    (tmp_path / "all_reduce_perf.log").write_text(text)
    (found,) = diagnose([tmp_path]).findings
    assert found.category == "slow_network_other"
    assert "100 GB/s between nodes where 8 NICs alone reach 392 GB/s" in found.cause
