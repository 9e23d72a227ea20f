"""What DeepSpeed's and Megatron's own times tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.network.comms_table import Op

HEADER = (
    "Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     "
    "tput_avg (Gbps)     busbw_avg (Gbps)\n"
)


def findings(folder: Path, text: str, name: str = "job.log") -> list[Finding]:
    (folder / name).write_text(text)
    return [one for one in diagnose([folder]).findings if one.severity != INFO]


def row(size: str, count: int, total: float, *more: float) -> str:
    rest = "   ".join(map(str, more or (total / count, 1.0, 1.0)))
    return f"                    {size:<20}{count:<20}{total:<20}{rest}\n"


def test_time_in_small_messages_is_named_with_its_operation(tmp_path: Path) -> None:
    text = f"{HEADER}broadcast\n{row('2.0 KB', 146, 11.12)}all_gather_into_tensor\n{row('128.0 KB', 9000, 900.0)}" + (
        f"reduce_scatter_tensor\n{row('250.0 MB', 24, 400.0)}"
    )
    (found,) = findings(tmp_path, text)
    assert (found.category, found.severity, found.confidence) == ("small_messages", WARNING, LIKELY)
    assert found.cause.startswith("69% of 1.3 s")  # (11.12 + 900) / 1311.12
    assert "9,000 all_gather_into_tensor" in found.cause


def test_time_in_large_messages_is_healthy(tmp_path: Path) -> None:
    assert findings(tmp_path, f"{HEADER}all_reduce\n{row('2.0 KB', 10, 40.0)}{row('1.45 GB', 2, 271.11)}") == []


def test_bandwidths_are_those_of_size_time_and_group() -> None:
    # 1 GiB in 10 ms is 107.4 GB/s; bus bandwidth of an all-reduce of 8 ranks 1.75 times that, of an all-gather, whose
    # message is a rank's part, 8 · 7/8 = 7 times (nccl-tests, PERFORMANCE.md).
    reduce, gather = (Op(name, 2**30, 3, 30.0, None) for name in ("all_reduce", "all_gather_into_tensor"))
    assert reduce.bytes_per_s == pytest.approx(107.374e9, rel=1e-4)
    assert reduce.bus_bytes_per_s(8) == pytest.approx(1.75 * 107.374e9, rel=1e-4)
    assert gather.bus_bytes_per_s(8) == pytest.approx(7 * 107.374e9, rel=1e-4)
    assert Op("barrier", 0, 3, 5.0, None).bus_bytes_per_s(8) is None


def test_the_rank_that_the_others_wait_for_waits_least(tmp_path: Path) -> None:
    header = HEADER.replace("Avg Latency", "Total straggler(ms) Avg Latency")
    for rank, waited in enumerate((800.0, 820.0, 15.0, 790.0)):
        (tmp_path / f"rank_{rank}.log").write_text(
            f"{header}all_reduce\n{row('25.0 MB', 100, 1000.0, waited, 10.0, 1.0, 1.0)}"
        )
    (found,) = [one for one in diagnose([tmp_path]).findings if one.severity != INFO]
    assert (found.category, found.confidence, found.ranks) == ("straggler_gpu", POSSIBLE, (2,))


def microstep(forward: float, backward: float, reduce: float) -> str:
    """As DeepSpeed 0.9 prints it (EleutherAI/gpt-neox#965)."""
    return (
        "[2023-06-03 00:10:23,345] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward_microstep: "
        f"{forward:.2f} | backward_microstep: {backward:.2f} | backward_inner_microstep: {backward - reduce:.2f} | "
        f"backward_allreduce_microstep: {reduce:.2f} | step_microstep: 0.05\n"
    )


def test_a_reduction_that_rules_the_step_is_told_with_its_share(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, microstep(300, 1700, 1400) * 4)
    assert (found.severity, found.confidence) == (WARNING, POSSIBLE)
    assert "70% of a step of 2,000 ms" in found.cause


def test_the_reduction_of_gpt_neox_965_does_not_rule_its_micro_step(tmp_path: Path) -> None:
    assert findings(tmp_path, microstep(1330.05, 4766.88, 355.95) * 4) == []


def test_a_reduction_outside_of_compute_in_megatrons_old_line(tmp_path: Path) -> None:
    # NVIDIA/Megatron-LM#184
    line = (
        "time (ms) | forward-compute: 604.56 | backward-compute: 701.16 | backward-params-all-reduce: 2672.65 | "
        "backward-embedding-all-reduce: 0.13 | optimizer-copy-to-main-grad: 21.18 | optimizer: 857.27\n"
    )
    (found,) = findings(tmp_path, line * 3)
    assert (found.category, found.confidence) == ("slow_network_other", POSSIBLE)
    assert "2,673 ms" in found.cause


def megatron(least: float, most: float, batch: float = 2.0) -> str:
    return (
        "    (min, max) time across ranks (ms):\n"
        f"    forward-backward ...............................: ({least:.2f}, {most:.2f})\n"
        f"    forward-compute ................................: ({least / 3:.2f}, {most / 3:.2f})\n"
        f"    backward-compute ...............................: ({least / 1.5:.2f}, {most / 1.5:.2f})\n"
        f"    batch-generator ................................: (1.00, {batch:.2f})\n"
        "    all-grads-sync .................................: (10.00, 20.00)\n"
        "    optimizer ......................................: (30.00, 31.00)\n"
    )


def test_equal_ranks_of_megatron_are_healthy(tmp_path: Path) -> None:
    assert findings(tmp_path, megatron(3000, 3050) * 4) == []


def test_stages_of_unequal_work_are_told(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, megatron(2400, 3000) * 4)
    assert (found.category, found.confidence) == ("pipeline_imbalance", POSSIBLE)
    assert "20%" in found.cause


def test_a_slow_batch_generator_is_told(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, megatron(1000, 1020, batch=900) * 4)
    assert (found.category, found.confidence) == ("dataloader_bound", LIKELY)


def straggler(most: float, rank: int, clock: int) -> str:
    """As in megatron/core/README_STRAGGLER.md, one line an interval."""
    return (
        f"INFO:megatron.core:MnRtt/Rnk: 3000.08ms/8 | MxRtt/Rnk: {most}ms/{rank} | MnPwr/Rnk: 601.04W/8 | MxPwr/Rnk: "
        f"683.80W/1 | MnTmp/Rnk: 52.00C/0 | MxTmp/Rnk: 74.00C/{rank} | MnUtl/Rnk: 99%/0 | MxUtl/Rnk: 100%/1 | "
        f"MnClk/Rnk: {clock}MHz/{rank} | MxClk/Rnk: 1950MHz/0 | MnDRtt/Rnk: 14.49ms/5 | MxDRtt/Rnk: 21.74ms/{rank} | "
        "MnEtpt/Rnk: 290.21TF/8\n"
    )


def test_a_device_with_a_low_clock_is_a_likely_straggler(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, straggler(4000, 5, 1200) * 4)
    assert (found.category, found.confidence, found.ranks) == ("straggler_gpu", LIKELY, (5,))
    assert "1200 MHz" in found.cause


def test_ranks_three_percent_apart_have_no_straggler(tmp_path: Path) -> None:
    assert findings(tmp_path, straggler(3090, 5, 1900) * 4) == []


@pytest.mark.parametrize("number", ["9" * 300, "nan", "-1", "1e999"])
def test_hostile_figures_are_no_crash(tmp_path: Path, number: str) -> None:
    text = (
        f"2026-01-01 00:00:00 INFO\n{HEADER}all_reduce\n{row(number + ' KB', 3, 1.0)}"
        f"{row('1 KB', 3, 1.0).replace('3', number)}"
        f"time (ms) | forward: {number} | backward: {number} | step: {number}\n"
        f"forward-compute ...: ({number}, {number})\nMnRtt/Rnk: {number}ms/{number} | MxRtt/Rnk: {number}ms/1\n"
        f"NCCL INFO nranks {number} Channel {number} : via NET/\n"
        f"NET/IB : Got completion from peer x with status={number} opcode= vendor err {number}\n# nThread {number}\n"
        f"   {number}  {number}  half sum -1 {number} {number} {number} {number}\n"
    )
    (tmp_path / "job.log").write_text(text)
    assert diagnose([tmp_path]).inputs
