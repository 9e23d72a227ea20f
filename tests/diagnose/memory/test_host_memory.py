"""Host memory: what the kernel, Slurm, containers and torch's elastic agent print when a process is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, POSSIBLE, Finding


def said(folder: Path, text: str) -> tuple[Finding, ...]:
    (folder / "run.log").write_text(text)
    return diagnose([folder]).findings


@pytest.mark.parametrize(
    "line",
    [
        # kernel 5.x and older, with and without a cgroup; Slurm before and after 20.11
        "[Sun Mar 30 08:24:00 2025] Out of memory: Killed process 7899 (python) total-vm:26184840kB",
        "[7063.247] Memory cgroup out of memory: Killed process 63214 (python3) total-vm:3149468kB, anon-rss:164992kB",
        "Aug 16 20:29:54 node kernel: Memory cgroup out of memory: Kill process 42453 (pt_main_thread) score 0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task_memcg=/job,task=python,pid=7899,uid=0",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks were OOM Killed.",
        "slurmstepd: error: Detected 2 oom-kill event(s) in step 3756240.batch cgroup.",
    ],
)
def test_a_kernel_or_a_scheduler_that_says_so_is_certain(tmp_path: Path, line: str) -> None:
    found = said(tmp_path, f"2025-01-01 10:00:00 INFO start\n{line}\n")
    assert (found[0].category, found[0].confidence) == ("host_oom", CERTAIN)


def test_a_kill_at_the_limit_of_a_cgroup_is_no_shortage_of_the_machine(tmp_path: Path) -> None:
    line = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task_memcg=/job,task=python,pid=7899,uid=0\n"
    assert "memory limit (cgroup) was reached" in said(tmp_path, line)[0].cause


def test_a_kill_of_some_other_program_is_but_possibly_ours(tmp_path: Path) -> None:
    line = "[7063.247] Out of memory: Killed process 63214 (uwsgi) total-vm:3149468kB, anon-rss:164992kB\n"
    assert (said(tmp_path, line)[0].category, said(tmp_path, line)[0].confidence) == ("host_oom", POSSIBLE)


ELASTIC = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
  time      : 2023-01-01_10:00:00
  rank      : 3 (local_rank: 3)
  exitcode  : {code} (pid: 4711)
"""


def test_sigkill_alone_is_possible_and_names_the_rank(tmp_path: Path) -> None:
    # GLM-130B#31
    found = said(tmp_path, ELASTIC.format(code=-9) + "  traceback : Signal 9 (SIGKILL) received by PID 4711\n")[0]
    assert (found.category, found.confidence, found.ranks) == ("host_oom", POSSIBLE, (3,))


@pytest.mark.parametrize(
    "line",
    [
        "[ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python', '-u', 'train.py'] exits with return code = -9",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
        "run.sh: line 28:  8156 Killed                  python3 main.py",
    ],
)
def test_sigkill_is_seen_in_the_words_of_every_launcher(tmp_path: Path, line: str) -> None:
    assert [(one.category, one.confidence) for one in said(tmp_path, line + "\n")] == [("host_oom", POSSIBLE)]


def test_sigkill_while_loading_and_before_the_first_step_is_told_with_what_was_loaded(tmp_path: Path) -> None:
    # FastChat#568
    loading = "Loading checkpoint shards:   0%|          | 0/2 [00:00<?, ?it/s]\n"
    found = said(tmp_path, loading + ELASTIC.format(code=-9))
    assert (found[0].category, found[0].confidence) == ("host_oom", POSSIBLE)  # an exit code says no more
    assert "while the model was loaded" in found[0].cause
    step = "step: 12 loss: 2.3\n"
    assert "loaded" not in said(tmp_path, loading + step + ELASTIC.format(code=-9))[0].cause


def test_other_ends_are_not_taken_for_host_memory(tmp_path: Path) -> None:
    assert not any(one.category == "host_oom" for one in said(tmp_path, ELASTIC.format(code=1)))
    limit = "slurmstepd: error: *** JOB 12 ON node CANCELLED AT 2023-01-01T10:00:00 DUE TO TIME LIMIT ***\n"
    assert not any(one.category == "host_oom" for one in said(tmp_path, limit + ELASTIC.format(code=-9)))


def test_sigkill_after_a_device_ran_out_of_memory_is_its_consequence(tmp_path: Path) -> None:
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity)\n"
    assert not any(one.category == "host_oom" for one in said(tmp_path, oom + ELASTIC.format(code=-9)))


def test_a_size_that_rises_from_step_to_step_is_a_leak_and_a_cache_that_fills_is_not(tmp_path: Path) -> None:
    # The line is DeepSpeed's see_memory_usage.
    line = "[2024-01-01 10:00:00,123] [INFO] CPU Virtual Memory:  used = {:.2f} GB, percent = 7.8%\n"
    leak = "".join(line.format(40 + 5 * step) for step in range(20))
    assert [one.category for one in said(tmp_path, leak)] == ["host_oom"]
    cache = "".join(line.format(min(80, 40 + 10 * step)) for step in range(20))
    assert said(tmp_path, cache) == ()
