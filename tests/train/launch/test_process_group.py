"""Ranks that join under the local launcher and under torchrun, and devices that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from meshwright.train.launch.environment import ALONE, Place
from meshwright.train.launch.errors import LaunchError
from meshwright.train.launch.local import launch_local
from meshwright.train.launch.pool import RankPool
from meshwright.train.launch.process_group import all_here, backends_of, device_of
from meshwright.train.launch.threads import threads_of_a_rank

RANK = """
import json, os, sys
from pathlib import Path
from meshwright.train.launch.environment import read_place
from meshwright.train.launch.error_files import record_errors
folder = Path(sys.argv[1])
place = read_place()
with record_errors(place.rank, folder):
    import torch, torch.distributed as dist
    from meshwright.train.launch.process_group import finalize, initialize
    device = initialize(place)
    x = torch.tensor([place.rank + 1.0], device=device)
    dist.all_reduce(x)
    if "fail" in sys.argv and place.rank == 1:
        raise ValueError("rank one gives up")
    if "fail" in sys.argv:
        dist.all_reduce(x)
    told = [place.launcher, x.item(), torch.get_num_threads(), dist.get_backend()]
    (folder / f"{place.rank}.json").write_text(json.dumps(told))
    finalize()
"""
NODE = replace(ALONE, world_size=4, local_rank=3, local_world_size=4, rank=3, launcher="torchrun")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "rank_script.py"
    path.write_text(RANK)
    return path


def _without_threads() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


def test_local_ranks_join_with_one_thread_each(
    tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert launch_local([sys.executable, str(script), str(tmp_path)], 2, tmp_path) == 0
    for rank in range(2):
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        assert told[:3] == ["local", 3.0, 1]
    assert capfd.readouterr() == ("", "")


def test_a_rank_of_gloo_that_fails_is_shown_and_not_the_peer_that_lost_it(
    tmp_path: Path, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch_local([sys.executable, str(script), str(tmp_path), "fail"], 2, tmp_path) == 1
    err = capfd.readouterr().err
    assert err.startswith("error: rank 1 of 2 failed: ValueError: rank one gives up\n")
    assert "Traceback (most recent call last)" not in err


def test_under_torchrun_only_the_rank_that_failed_shows_its_error(tmp_path: Path, script: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(script), str(tmp_path), "fail"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("rank 1 failed:\n") == 1
    assert "ValueError: rank one gives up" in done.stderr.split("Root Cause", 1)[1]
    # The peer names that rank or was stopped before it could.
    assert "rank 0 failed:\n" not in done.stderr
    error = json.loads((tmp_path / "logs" / "error-0001.json").read_text())
    assert (error["kind"], error["rank"]) == ("ValueError", 1)


def test_a_process_alone_needs_no_port(tmp_path: Path, script: Path) -> None:
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=120, env=_without_threads())
    assert json.loads((tmp_path / "0.json").read_text())[:2] == ["single", 1.0]


def _gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


@pytest.mark.parametrize(
    ("place", "gpus", "device"),
    [
        (NODE, 4, "cuda:3"),
        (NODE, 8, "cuda:3"),
        (NODE, 0, "cpu"),
        (replace(NODE, launcher="slurm"), 1, "cuda:0"),  # srun --gpus-per-task=1
        (ALONE, 1, "cuda:0"),
    ],
)
def test_each_rank_takes_its_gpu(monkeypatch: pytest.MonkeyPatch, place: Place, gpus: int, device: str) -> None:
    chosen = _gpus(monkeypatch, gpus)
    assert device_of(place) == torch.device(device)
    assert chosen == ([int(device[-1])] if gpus else [])


@pytest.mark.parametrize(("launcher", "gpus"), [("torchrun", 1), ("local", 2), ("slurm", 2)])
def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch, launcher: str, gpus: int) -> None:
    _gpus(monkeypatch, gpus)
    with pytest.raises(LaunchError, match=rf"4 ranks on .*, which has {gpus} GPU.* Legal: {gpus} rank.*, device cpu"):
        device_of(replace(NODE, launcher=launcher))


def test_a_gpu_that_is_asked_for_and_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _gpus(monkeypatch, 0)
    with pytest.raises(LaunchError, match="No GPU that this PyTorch can use"):
        device_of(ALONE, "cuda")


def test_gpus_talk_by_nccl_and_their_hosts_by_gloo() -> None:
    assert backends_of(torch.device("cuda", 0)) == "cpu:gloo,cuda:nccl"
    assert backends_of(torch.device("cuda", 0), "gloo") == "gloo"
    assert backends_of(torch.device("cpu")) == "gloo"
    with pytest.raises(LaunchError, match="nccl needs ranks on GPUs"):
        backends_of(torch.device("cpu"), "nccl")


def test_ranks_share_the_cores_of_their_node() -> None:
    assert threads_of_a_rank(8, gpu=True, available=96) == 12
    assert threads_of_a_rank(8, gpu=True, available=4) == 1
    assert threads_of_a_rank(8, gpu=False, available=96) == 1
    assert threads_of_a_rank(1, gpu=False, available=96) == 96
    assert threads_of_a_rank(8, gpu=True, launcher="slurm", available=12) == 12


def comes_late(seconds: float) -> str:
    if dist.get_rank() == 1:
        time.sleep(seconds)
        return ""
    try:
        all_here(1.0)
    except RuntimeError as error:
        return str(error)
    return "all came"


def test_a_rank_that_does_not_come_to_the_start_is_named(ranks: RankPool) -> None:
    said, _ = ranks.run(comes_late, 3.0, world=2)
    assert "[1]" in said or "rank 1" in said.lower() or "ranks 1" in said.lower()
