"""`meshwright train` as a person runs it: signals, ranks that die, exit codes, what is on the terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from meshwright.train.config.folder import CONFIG, prepare_folder
from meshwright.train.launch.local import launch_local
from meshwright.train.metrics.jsonl import read_steps

from .runs import FLAGS, job_of

FAULTY = str(Path(__file__).with_name("faulty.py"))


def command(folder: Path, *more: str) -> list[str]:
    flags = [word for name, value in FLAGS.items() if name != "checkpoint.async" for word in (f"--{name}", value)]
    flags = [word for word in flags if word not in ("--metrics.tensorboard", "false")]
    return [sys.executable, "-m", "meshwright", "train", *flags, "--layout", "ddp2", "--run", str(folder), *more]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def started(arguments: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """A run that has done some steps."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    metrics, deadline = folder / "metrics.jsonl", time.monotonic() + 120
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no step in two minutes"
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_asked_to_stop_saves_and_goes_on_later(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    process = started(command(tmp_path, "--train.steps", "100000", "--json"), tmp_path)
    process.send_signal(sent)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    done = read_steps(tmp_path / "metrics.jsonl")[-1]["step"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [f"step-{done:08d}"]
    assert f"asked to stop ({sent.name}): saved after step {done}; the same command goes on from there" in err
    assert "Traceback" not in err
    assert json.loads(out)["last"]["step"] == done
    if sent == signal.SIGTERM:
        arguments = command(tmp_path, "--train.steps", str(done + 2), "--layout", "tp2")
        again = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment(), timeout=120)
        assert again.returncode == 0, again.stderr
        assert [s["step"] for s in read_steps(tmp_path / "metrics.jsonl")] == list(range(1, done + 3))
        told = again.stderr.splitlines()
        assert again.stdout == ""
        assert told[0].startswith("nano-llama, 54 K parameters, on 2 CPU ranks (gloo): tp2")
        assert any(line.startswith("running: ") and "tensors cut 2 ways" in line for line in told)
        assert any(line.startswith(f"resumed from {tmp_path}") for line in told)
        assert not [line for line in told if "arning" in line or "deprecated" in line]


def faulty(folder: Path, fault: str) -> int:
    """The exit code of a run of two ranks with a fault."""
    prepare_folder(job_of(folder, "ddp2", {"train.steps": "100000"}))
    arguments = [sys.executable, FAULTY, "train", str(folder / CONFIG)]
    return launch_local(arguments, 2, folder, environment={"FAULT": fault}, threads=1)


def test_a_rank_that_fails_is_named_with_its_own_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert faulty(tmp_path, "raise:1:3") == 1
    err = capfd.readouterr().err
    told = err[err.index("error: ") :].splitlines()
    assert told[0] == "error: rank 1 of 2 failed: ArithmeticError: an injected fault"
    assert "faulty.py" in told[1]
    assert len(told) == 4
    assert len(read_steps(tmp_path / "metrics.jsonl")) == 2
    assert "Traceback" in (tmp_path / "logs" / "rank-0001.log").read_text()


def test_a_rank_that_is_killed_takes_the_run_down(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert faulty(tmp_path, "kill:1:3") == 1
    err = capfd.readouterr().err
    assert "error: rank 1 of 2 failed: killed by SIGKILL" in err
    assert "Connection closed" not in err
