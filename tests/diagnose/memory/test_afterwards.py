"""Failures of memory that a run survives, the rank and the frame of those that it does not, and logs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import ERROR, INFO, POSSIBLE, Finding

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 172.00 MiB. GPU 3 has a total capacity of 79.15 GiB "
    "of which 60.00 MiB is free. Including non-PyTorch memory, this process has 79.04 GiB memory in use. Of the "
    "allocated memory 78.21 GiB is allocated by PyTorch, and 200.90 MiB is reserved by PyTorch but unallocated.\n"
)
TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/home/me/train.py", line 88, in <module>\n'
    "    loss = step(batch)\n"
    '  File "/home/me/model.py", line 17, in step\n'
    "    loss.backward()\n"
    '  File "/opt/conda/lib/python3.11/site-packages/torch/_tensor.py", line 581, in backward\n'
    "    torch.autograd.backward(\n"
)
REPORT = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-23_10:11:12\n  host      : node-b\n"
    "  rank      : {rank} (local_rank: {local})\n  exitcode  : {code} (pid: 4303)\n"
)
LOADING = "Loading checkpoint shards:  40%|████      | 6/15 [01:24<02:06, 14.0s/it]\n"
KILLED = (
    "E1123 10:11:14.456000 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) "
    "local_rank: 2 (pid: 4303) of binary: /opt/conda/bin/python\n"
)


def steps(first: int, last: int, prefix: str = "") -> str:
    return "".join(f"{prefix}step: {s} loss: {9 - s / 100:.4f} grad_norm: 1.0\n" for s in range(first, last))


def said(folder: Path, files: Mapping[str, str]) -> list[Finding]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return list(diagnose([folder]).findings)


@pytest.mark.parametrize("caught", [
    "[rank0]: WARNING: CUDA out of memory during auto-batch-size probe with batch 64, retrying with batch 32\n",
    "[rank0]: CUDA out of memory. Tried to allocate 2.00 GiB (skipping this batch)\n",
    "".join(f"[rank0]: {line}\n" for line in (TRACE + OOM).splitlines()),
    "[rank0]: RuntimeError: [enforce fail at alloc_cpu.cpp:75] DefaultCPUAllocator: can't allocate memory: tried 9\n",
])  # fmt: skip
def test_what_later_steps_of_the_same_run_follow_is_no_error(tmp_path: Path, caught: str) -> None:
    prefix = "[rank0]: "
    found = said(tmp_path, {"a.log": steps(1, 4, prefix) + caught + steps(4, 9, prefix)})
    assert [one.severity for one in found] == [INFO]
    assert "went on" in found[0].cause


def test_a_fault_that_the_driver_reports_amid_steps_is_a_remark(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 94, pid=1, Contained: SM (0x1). RST: No, D-RST: No\n"
    found = said(tmp_path, {"a.log": steps(1, 4) + xid + steps(4, 9)})
    assert [(one.category, one.severity) for one in found] == [("hardware_fault", INFO)]
    assert said(tmp_path, {"a.log": steps(1, 4) + xid})[0].severity == ERROR


@pytest.mark.parametrize(("before", "between", "after"), [
    (steps(1, 5), "", ""),
    (steps(1, 5), "", steps(5, 6)),  # the step that others were in
    (steps(1, 5), REPORT.format(rank=0, local=0, code=1), steps(5, 9)),  # a new process
    (steps(1, 5), "", steps(1, 9)),  # a restart
    ("", "", steps(1, 9)),  # output that was buffered when the process ended
])  # fmt: skip
def test_what_ends_a_run_stays_an_error(tmp_path: Path, before: str, between: str, after: str) -> None:
    found = said(tmp_path, {"a.log": before + TRACE + OOM + between + after})
    assert any((one.category, one.severity) == ("oom_capacity", ERROR) for one in found)


def test_the_cause_names_rank_world_and_host_and_the_evidence_the_users_innermost_frame(tmp_path: Path) -> None:
    log = "".join(f"[rank3]: {line}\n" for line in (TRACE + OOM).splitlines())
    found = said(tmp_path, {
        "train.log": steps(1, 3, "[rank0]: ") + log + REPORT.format(rank=3, local=3, code=1),
        "run.sh": "torchrun --nproc_per_node 8 train.py\n",
    })[0]  # fmt: skip
    assert found.cause.startswith("Rank 3 of 8 on node-b: The device is full")
    assert found.ranks == (3,)
    frame = next(one for one in found.evidence if one.event == "traceback")
    # Two lines of steps, then the header, the outer frame (2 lines), and the inner one in the 6th line.
    assert frame.line == 6
    assert "model.py" in frame.text
    assert "loss.backward()" in frame.text


def test_a_launchers_report_names_the_jobs_rank_and_the_host(tmp_path: Path) -> None:
    # local_rank 2 of the second node of eight devices is rank 10.
    found = said(tmp_path, {
        "a.log": LOADING + KILLED + REPORT.format(rank=10, local=2, code=-9),
        "run.sh": "torchrun --nnodes 2 --nproc_per_node 8 train.py\n",
    })[0]  # fmt: skip
    assert found.cause.startswith("Rank 10 of 16 on node-b was killed (SIGKILL) while the model was loaded")
    assert "may hold a copy" in found.cause
    assert found.ranks == (10,)


def test_the_kernels_and_slurms_lines_name_the_host(tmp_path: Path) -> None:
    kernel = "Nov 23 10:11:12 node-c kernel: Out of memory: Killed process 77 (python) total-vm:1kB\n"
    assert "on node-c" in said(tmp_path, {"dmesg.txt": kernel})[0].cause
    (tmp_path / "dmesg.txt").unlink()
    slurm = "srun: error: node-d: task 3: Out Of Memory\n"
    found = said(tmp_path, {"slurm.out": slurm})[0]
    assert "rank 3 on node-d" in found.cause
    assert found.ranks == (3,)


def test_a_slurm_task_that_starts_several_ranks_is_none_of_them(tmp_path: Path) -> None:
    launch = "srun --nodes 4 --ntasks-per-node 1 torchrun --nnodes 4 --nproc_per_node 8 train.py\n"
    found = said(tmp_path, {"slurm.out": "srun: error: node-d: task 3: Out Of Memory\n", "run.sh": launch})[0]
    assert found.ranks == ()
    assert "on node-d" in found.cause


def test_a_healthy_log_beside_changes_no_verdict(tmp_path: Path) -> None:
    alone = said(tmp_path, {"a.log": LOADING + KILLED + REPORT.format(rank=2, local=2, code=-9)})
    assert "while the model was loaded" in alone[0].cause
    healthy = {
        "b.log": LOADING + steps(1, 9, "[rank0]: ") + "[rank0]: training finished\n",
        "c.log": "[rank0]: resuming from checkpoint /ckpt/4\n" + steps(1, 9, "[rank1]: "),
    }
    beside = said(tmp_path, healthy)
    assert [(one.cause, one.confidence) for one in beside] == [(one.cause, POSSIBLE) for one in alone]


def test_a_job_of_one_device_is_not_taken_for_the_first_of_a_healthy_one_beside(tmp_path: Path) -> None:
    log = OOM.replace("GPU 3", "GPU 0")
    alone = said(tmp_path, {"a.log": "[rank0]: x = torch.load(path)\n[rank0]: " + log})
    beside = said(tmp_path, {"b.log": steps(1, 9, "[rank0]: ") + steps(1, 9, "[rank1]: ")})
    assert [one.category for one in beside] == [one.category for one in alone] == ["oom_checkpoint"]


def test_the_launchers_log_and_those_of_its_ranks_are_one_job(tmp_path: Path) -> None:
    ranks = {f"rank{rank}.log": LOADING for rank in range(4)}
    found = said(tmp_path, {"torchrun.log": KILLED, **ranks})
    assert "while the model was loaded" in found[0].cause
