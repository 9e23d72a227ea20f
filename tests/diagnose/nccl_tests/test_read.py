"""Output of nccl-tests, of every generation, becomes the rows of its table; what is broken is told in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.nccl_tests import Outcome, ReadError, read_file, read_text

LOGS = Path(__file__).parents[4] / "shared" / "data" / "diagnosis" / "nccl_tests"

HEAD = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1\n"
)


def ranks(hosts: list[str]) -> str:
    return "#\n# Using devices\n" + "".join(
        f"#  Rank {rank:2d} Group  0 Pid {100 + rank} on {host:>10} device {rank % 4:2d} [0x1a] NVIDIA H100 80GB HBM3\n"
        for rank, host in enumerate(hosts)
    )


TABLE = """#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    50.00   20.97   31.46      0    40.00   26.21   39.32      0
     2097152        524288     float     sum      -1    80.00   26.21   39.32      0    90.00   23.30   34.95      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 36.0
#
"""
OLD = """# nThread 1 nGpus 4 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  1234 on node1 device  0 [0x1a] Tesla V100-SXM2-32GB
#   Rank  1 Pid  1234 on node1 device  1 [0x1b] Tesla V100-SXM2-32GB
#   Rank  2 Pid  1234 on node1 device  2 [0x1c] Tesla V100-SXM2-32GB
#   Rank  3 Pid  1234 on node1 device  3 [0x1d] Tesla V100-SXM2-32GB
#
#                                                     out-of-place                    in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    41.00   25.57   38.36  2e-07    40.00   26.21   39.32  2e-07
 Out of bounds values : 0 OK
"""
NEW = """# nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808
# Collective test starting: alltoall_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 50 agg iters: 1
{ranks}#
# out-of-place in-place
# size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp
# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s) %Y-%m-%d %H:%M:%S
     1048576 65536 float none -1 100.00 10.49 7.86 0 110.00 9.53 7.15 N/A 2026-01-02 03:04:05
# Out of bounds values : 0 OK
# Avg bus bandwidth : 7.5
#
# Collective test concluded: alltoall_perf
"""


def read(text: str, where: str = "log", **more: Any) -> Outcome:
    return read_text(text, where, **more)


def test_the_usual_table_becomes_rows() -> None:
    found = read("+ srun all_reduce_perf_mpi -b 1M\n" + HEAD + ranks(["n1"] * 4) + TABLE)
    assert (found.ranks, found.nodes, found.device) == (4, 1, "NVIDIA H100 80GB HBM3")
    small, large = found.rows
    assert (small.operation, small.bytes, small.iterations) == ("all-reduce", 1_048_576, 20)
    assert (small.line.ranks, small.line.tier) == (4, "intra")
    assert small.seconds == pytest.approx(40e-6)  # in-place was the faster one
    assert large.seconds == pytest.approx(80e-6)
    assert small.bus_bytes_per_s == pytest.approx(39.32e9, rel=1e-3)


def test_hosts_tell_the_tier() -> None:
    found = read("all_reduce_perf\n" + HEAD + ranks(["n1", "n1", "n2", "n2"]) + TABLE)
    assert (found.nodes, found.rows[0].line.nodes, found.rows[0].line.tier) == (2, 2, "inter")


def test_the_oldest_table_has_errors_and_no_root() -> None:
    found = read(OLD, "all_reduce_perf.log")
    assert (found.ranks, found.nodes, found.device) == (4, 1, "Tesla V100-SXM2-32GB")
    (row,) = found.rows
    assert row.seconds == pytest.approx(40e-6)


def test_the_newest_table_names_its_test_and_may_have_time_stamps() -> None:
    (row,) = read(NEW.format(ranks=ranks(["n1"] * 4))).rows
    assert (row.operation, row.iterations, row.bytes) == ("all-to-all", 50, 1_048_576)
    assert row.seconds == pytest.approx(100e-6)


def test_per_iteration_columns_are_passed_over() -> None:
    names = "# size count type redop root" + " time algbw busbw #wrong i_min i_max i_p99 i_cv%" * 2
    text = """# Collective test starting: all_gather_perf
# nThread 1 nGpus 1 minBytes 64 maxBytes 64 step: 2(factor) warmup iters: 1 iters: 3
{ranks}#
{names}
# (B) (elements) (us) (GB/s) (GB/s) (us) (us) (us) (%) (us) (GB/s) (GB/s) (us) (us) (us) (%)
  4096 256 float none -1 10.0 0.41 0.31 0 9.0 11.0 11.0 8.2 12.0 0.34 0.26 0 9.0 11.0 11.0 8.2
"""
    (row,) = read(text.format(ranks=ranks(["n1"] * 4), names=names)).rows
    assert (row.operation, row.seconds) == ("all-gather", pytest.approx(10e-6))


def test_lines_of_launchers_and_libraries_do_not_disturb() -> None:
    plain = "all_reduce_perf\n" + HEAD + ranks(["n1"] * 4) + TABLE
    numbered = "".join(f"0: {line}\n" for line in plain.splitlines())
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in plain.splitlines())
    chatty = plain.replace("# Using", "n1:7:7 [0] NCCL INFO Bootstrap : Using eth0\n# Using")
    for text in (numbered, tagged, chatty, plain.replace("\n", "\r\n")):
        assert [row.seconds for row in read(text).rows] == [row.seconds for row in read(plain).rows]


def test_a_file_may_hold_several_tests() -> None:
    one = HEAD + ranks(["n1"] * 4) + TABLE
    found = read(f"+ ./all_reduce_perf -b 1M\n{one}+ ./reduce_scatter_perf -b 1M\n{one}")
    assert [row.operation for row in found.rows] == ["all-reduce"] * 2 + ["reduce-scatter"] * 2


def test_ranks_that_are_not_listed_follow_from_the_two_bandwidths() -> None:
    found = read("all_reduce_perf\n" + TABLE, tier="inter")
    assert found.ranks == 4  # busbw / algbw = 1.5 = 2·3/4
    assert found.rows[0].line.tier == "inter"


def document(**more: Any) -> dict[str, Any]:
    half = {"time": 50.0, "alg_bw": 20.97, "bus_bw": 31.46, "nwrong": 0.0}
    return {
        "version": 2,
        "args": ["./build/all_reduce_perf", "-J", "out.json"],
        "config": {
            "iterations": 20,
            "devices": [
                {"rank": r, "hostname": "n1", "device": r, "device_info": "NVIDIA H100 80GB HBM3"} for r in range(4)
            ],
        },
        "results": [
            {"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1",
             "out_of_place": half, "in_place": {**half, "time": 40.0, "alg_bw": 26.21, "bus_bw": 39.32}},
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        **more,
    }  # fmt: skip


def test_the_json_file_says_the_same() -> None:
    found = read(json.dumps(document()))
    assert (found.ranks, found.nodes, found.device) == (4, 1, "NVIDIA H100 80GB HBM3")
    (row,) = found.rows
    assert (row.operation, row.bytes, row.iterations, row.seconds) == ("all-reduce", 1048576, 20, pytest.approx(40e-6))


def test_json_of_cpu_times_and_of_in_place_alone_is_read() -> None:
    half = {"cpu_time": 30.0, "alg_bw": 34.9, "bus_bw": 52.4, "nwrong": None}
    result = {"size": 1048576, "out_of_place": None, "in_place": half}
    assert read(json.dumps(document(results=[result]))).rows[0].seconds == pytest.approx(30e-6)


WRONG = TABLE.replace("39.32      0    90.00", "39.32      7    90.00")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no result of nccl-tests"),
        ("hello\nworld\n", "no result of nccl-tests"),
        ("n1: Test CUDA failure common.cu:893 'no CUDA-capable device'\n", "It says: n1: Test CUDA failure"),
        ("all_reduce_perf\n" + TABLE, "does not say which ranks share a node. Legal: --tier intra, --tier inter."),
        (HEAD + ranks(["n1"] * 4) + WRONG.replace("31.46", "15.73"), "wrong data at 2,097,152 bytes"),
        ("all_reduce_perf\n" + HEAD + ranks(["n1"] * 4) + TABLE.replace("0 OK", "3 FAILED"), "wrong data"),
        ("reduce_perf\n" + HEAD + ranks(["n1"] * 4) + TABLE, "reduce_perf is not an operation"),
        ("all_reduce_perf\n" + HEAD + ranks(["n1"] * 4) + TABLE.replace("50.00", "fifty"), "is no line of"),
        ("{", "broken JSON"),
        ('{"results": 3}', "it has no list `results`"),
        (json.dumps(document(results=[{"size": 8}])), "results[0]: no result of nccl-tests"),
        (json.dumps(document(results=[])), "no result of nccl-tests"),
        (json.dumps(document(out_of_bounds={"count": 2})), "wrong data"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told(text: str, told: str) -> None:
    with pytest.raises(ReadError) as caught:
        read(text)
    assert told in str(caught.value)
    assert str(caught.value).startswith("log")
    assert "\n" not in str(caught.value)


def test_an_operation_that_nobody_names_has_to_be_given() -> None:
    gather = TABLE.replace("31.46", "15.73").replace("39.32", "19.66").replace("34.95", "17.47")
    text = HEAD + ranks(["n1"] * 4) + gather
    with pytest.raises(ReadError, match="--op all-gather"):
        read(text)
    assert read(text, operation="reduce-scatter").rows[0].operation == "reduce-scatter"
    assert read(text, "all_gather_perf.out").rows[0].operation == "all-gather"


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="No such file"):
        read_file(tmp_path / "none.log")


@pytest.mark.skipif(not LOGS.is_dir(), reason="the published logs are not here")
def test_a_published_log_of_eight_h100_is_read() -> None:
    found = read_file(LOGS / "mlperf40_smc_bert_8xH100.log")
    assert (found.ranks, found.nodes, found.device) == (8, 1, "NVIDIA H100 80GB HBM3")
    assert [row.bytes for row in found.rows] == [22020096 * 2**power for power in range(6)]
    last = found.rows[-1]
    assert last.operation == "all-reduce"
    assert last.bus_bytes_per_s == pytest.approx(458.66e9, rel=1e-3)


@pytest.mark.skipif(not LOGS.is_dir(), reason="the published logs are not here")
def test_a_published_log_of_a_test_that_failed_says_why() -> None:
    with pytest.raises(ReadError, match="no CUDA-capable device"):
        read_file(LOGS / "mlperf40_oracle_resnet_8gpu.log")
