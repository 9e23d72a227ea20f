"""One rank fails first and the others follow: the first thing said is why it failed, and whose it is.

The texts are those of torch 2.6 (ProcessGroupNCCL.cpp, distributed/elastic) and of CUDA's driver.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, INFO, LIKELY, POSSIBLE, Finding

KEY_ERROR = (
    "[rank{r}]: Traceback (most recent call last):\n"
    '[rank{r}]:   File "/w/train.py", line 88, in main\n[rank{r}]:     text = rows[key]\n'
    '[rank{r}]:   File "/usr/lib/python3/site-packages/rows.py", line 5, in get\n[rank{r}]:     return self.x[key]\n'
    "[rank{r}]: KeyError: 'text'\n"
)
OOM = (
    "[rank{r}]: Traceback (most recent call last):\n"
    '[rank{r}]:   File "/w/train.py", line 90, in main\n[rank{r}]:     loss.backward()\n'
    "[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of "
    "79.10 GiB of which 1.12 GiB is free. Of the allocated memory 74.21 GiB is allocated by PyTorch, and 1.01 GiB is "
    "reserved by PyTorch but unallocated.\n"
)
ECC = "[rank{r}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"


def steps(rank: int) -> str:
    return "".join(f"[rank{rank}]: step {step} loss {3 - 0.1 * step:.2f}\n" for step in range(1, 6))


def timed_out(rank: int) -> str:
    return (
        f"[rank{rank}]:[E304 10:10:20.324951270 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=231, OpType=ALLREDUCE, NumelIn=50331648, NumelOut=50331648, "
        "Timeout(ms)=600000) ran for 600041 milliseconds before timing out.\n"
        f"[rank{rank}]:[E304 10:10:20.425151270 ProcessGroupNCCL.cpp:1834] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        "Timeout at NCCL work: 231, last enqueued NCCL work: 233, last completed NCCL work: 230.\n"
    )


def peer_gone(rank: int) -> str:
    return (
        f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: torch.distributed.DistBackendError: NCCL "
        "error in: NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.21.5\n"
        f"[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.\n"
    )


def report(rank: int, code: int) -> str:
    return (
        "W0304 10:00:17.000000 4001 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4102 closing "
        "signal SIGTERM\nTraceback (most recent call last):\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2025-03-04_10:00:17\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 4101)\n  error_file: <N/A>\n"
    )


def said(folder: Path, culprit: int, own: str, others: str, code: int = 1) -> tuple[Finding, ...]:
    follow = {"timeouts": timed_out, "closed": peer_gone}[others]
    for rank in range(4):
        end = own.replace("{r}", str(rank)) if rank == culprit else follow(rank)
        (folder / f"rank_{rank}.log").write_text(steps(rank) + end)
    (folder / "agent.log").write_text(report(culprit, code))
    return tuple(one for one in diagnose([folder]).findings if one.severity != INFO)


@pytest.mark.parametrize("others", ["timeouts", "closed"])
@pytest.mark.parametrize(("own", "category"), [(OOM, "oom_capacity"), (ECC, "hardware_fault"), (KEY_ERROR, "unknown")])
def test_the_cause_comes_first_and_the_rest_are_consequences(
    tmp_path: Path, own: str, category: str, others: str
) -> None:
    first, *rest = said(tmp_path, 3, own, others)
    assert (first.category, first.ranks) == (category, (3,))
    assert rest
    assert all(one.consequence for one in rest)


def test_an_exception_that_is_not_known_is_told_with_its_line_of_code(tmp_path: Path) -> None:
    first = said(tmp_path, 1, KEY_ERROR, "timeouts")[0]
    assert first.confidence == LIKELY
    assert "Rank 1 ended with KeyError: 'text'" in first.cause
    assert '"/w/train.py", line 88' in first.cause


@pytest.mark.parametrize(("code", "text"), [(-11, "signal 11 (SIGSEGV)"), (3, "exit code 3")])
def test_a_process_that_says_nothing_is_told_by_its_exit(tmp_path: Path, code: int, text: str) -> None:
    first = said(tmp_path, 2, "", "closed", code)[0]
    assert (first.ranks, text in first.cause) == ((2,), True)


def test_a_killed_process_is_not_told_twice(tmp_path: Path) -> None:
    first, *rest = said(tmp_path, 2, "", "closed", -9)
    assert (first.category, first.ranks) == ("host_oom", (2,))
    assert all(one.consequence for one in rest)


def test_who_fails_because_another_ended_is_not_blamed(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("".join(steps(rank) + peer_gone(rank) for rank in range(4)))
    assert all(one.consequence for one in diagnose([tmp_path]).findings)


def test_an_exception_that_was_caught_is_no_end(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text(
        steps(0) + KEY_ERROR.replace("{r}", "0") + "".join(f"[rank0]: step {s} loss 2.1\n" for s in range(6, 99))
    )
    assert [one for one in diagnose([tmp_path]).findings if one.severity != INFO] == []


def test_a_job_at_its_time_limit_is_told_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "slurm.out").write_text(
        steps(0) + "slurmstepd: error: *** STEP 481.0 ON n1 CANCELLED AT 2025-03-04T18:00:00 DUE TO TIME LIMIT ***\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4001 got signal: 15\n"
    )
    first = diagnose([tmp_path]).findings[0]
    assert (first.category, first.confidence, "time limit" in first.cause) == ("unknown", CERTAIN, True)


@pytest.mark.parametrize(
    "words", ["Exception ignored in: <function __del__ at 0x7f>", "Error in atexit._run_exitfuncs:"]
)
def test_an_exception_that_python_ignores_is_no_end(tmp_path: Path, words: str) -> None:
    (tmp_path / "rank_0.log").write_text(f"{steps(0)}[rank0]: {words}\n{KEY_ERROR.replace('{r}', '0')}")
    assert [one for one in diagnose([tmp_path]).findings if one.severity != INFO] == []


def test_a_rank_of_ours_that_was_killed_is_named_from_what_its_launcher_left(tmp_path: Path) -> None:
    (tmp_path / "error-0001.json").write_text(
        '{"rank": 1, "time": 1.0, "kind": "signal", "message": "killed by SIGKILL", "traceback": "", "where": "",'
        ' "exit_code": -9, "is_request": false}'
    )
    (one,) = diagnose([tmp_path]).findings
    assert (one.category, one.confidence, one.ranks) == ("host_oom", POSSIBLE, (1,))


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("Segmentation fault (core dumped)", "crashed (Segmentation fault (core dumped))"),
        ("slurmstepd: error: *** JOB 991 ON n3 CANCELLED AT 2024-05-14T10:05:00 ***", "cancelled, or another task"),
    ],
)
def test_an_end_that_nothing_explains_is_told_and_no_more_than_possible(tmp_path: Path, end: str, words: str) -> None:
    (tmp_path / "job.log").write_text(f"{steps(0)}{end}\n")
    (found,) = diagnose([tmp_path]).findings
    assert (found.category, found.confidence, found.evidence[0].line) == ("unknown", POSSIBLE, 6)
    assert words in found.cause


def test_an_end_is_not_told_beside_what_explains_it(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(f"{steps(0)}{OOM.format(r=0)}Segmentation fault (core dumped)\n")
    assert "unknown" not in {one.category for one in diagnose([tmp_path]).findings}


def test_an_exception_that_is_quoted_without_its_traceback_is_told_as_possible(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ModuleNotFoundError: No module named 'flash_attn'\n")
    assert "No module named 'flash_attn'" in " ".join(one.cause for one in diagnose([tmp_path]).findings)
    assert {one.confidence for one in diagnose([tmp_path]).findings} == {POSSIBLE}


def test_a_kernel_s_assertion_is_an_index_out_of_range_and_no_broken_device(tmp_path: Path) -> None:
    # aten/src/ATen/native/cuda/Loss.cu
    (tmp_path / "job.log").write_text(
        f"{steps(0)}/pytorch/aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: "
        "[0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
        "[rank0]: RuntimeError: CUDA error: device-side assert triggered\n"
    )
    found = diagnose([tmp_path]).findings
    assert (found[0].category, found[0].confidence) == ("unknown", LIKELY)
    assert "index out of range" in found[0].cause
    assert "hardware_fault" not in {one.category for one in found}
