"""The local launcher: what it shows and how it ends, with ranks that are small scripts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from meshwright.spec.errors import RequestError
from meshwright.train.launch.local import launch_local

HEAD = """
import os, sys, time
from pathlib import Path
from meshwright.train.launch.error_files import record_errors
from meshwright.spec.errors import RequestError
rank = int(os.environ["RANK"])
folder = Path(sys.argv[1])
def hang():
    while True:
        time.sleep(0.05)
def all_here():
    (folder / f"here{rank}").touch()
    while len(list(folder.glob("here*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.02)
"""


@pytest.fixture
def command(tmp_path: Path) -> Callable[[str], list[str]]:
    """A rank's command from the body of its script."""

    def make(body: str) -> list[str]:
        script = tmp_path / "rank_script.py"
        script.write_text(HEAD + textwrap.dedent(body))
        return [sys.executable, str(script), str(tmp_path)]

    return make


Command = Callable[[str], list[str]]
Launched = Callable[[list[str]], subprocess.Popen[bytes]]


def test_ranks_that_end_well_are_a_job_that_ends_well(
    tmp_path: Path, command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    body = 'print("I am", rank, "of", os.environ["WORLD_SIZE"], os.environ["OMP_NUM_THREADS"], os.environ["COLOUR"])'
    assert launch_local(command(body), 3, tmp_path, environment={"COLOUR": "red"}, threads=2) == 0
    assert capfd.readouterr() == ("I am 0 of 3 2 red\n", "")
    assert (tmp_path / "logs" / "rank-0002.log").read_text() == "I am 2 of 3 2 red\n"


def test_the_first_error_is_shown_and_no_wall_of_others(
    tmp_path: Path, command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
    with record_errors(rank, folder):
        all_here()
        if rank == 2:
            time.sleep(0.3)  # The peers' errors come first.
            raise ValueError("the loss is gone\\nsecond line")
        raise RuntimeError("[pair.cc:547] Connection closed by peer [127.0.0.1]:3547")
    """
    assert launch_local(command(body), 4, tmp_path) == 1
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "error: rank 2 of 4 failed: ValueError: the loss is gone"
    assert lines[1] == "second line"
    assert "rank_script.py" in lines[2]
    assert 'raise ValueError("the loss is gone' in lines[2]
    assert "Traceback (most recent call last)" not in err
    assert "Connection closed" not in err
    assert 'raise ValueError("the loss' in (tmp_path / "logs" / "rank-0002.log").read_text()


def test_a_killed_rank_takes_the_job_down(tmp_path: Path, command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    body = """
    import signal
    print("step", 7)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # hangs in a collective, so to speak
    hang()
    """
    assert launch_local(command(body), 3, tmp_path, grace=1.5) == 1
    err = capfd.readouterr().err
    assert err.startswith(
        "error: rank 1 of 3 failed: killed by SIGKILL (killed by the kernel: out of host memory?)\n  step 7\n"
    )
    assert not _processes(tmp_path)


def test_a_rank_that_hangs_after_its_error_does_not_hold_the_job(
    tmp_path: Path, command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
    from meshwright.train.launch.error_files import write_error
    from meshwright.train.launch.failures import failure_of
    if rank == 1:
        write_error(folder, failure_of(rank, KeyError("stuck")))
    hang()
    """
    assert launch_local(command(body), 2, tmp_path, grace=1.5) == 1
    assert "rank 1 of 2 failed: KeyError: 'stuck'" in capfd.readouterr().err


def test_a_wrong_request_is_its_message_only(tmp_path: Path, command: Command) -> None:
    body = """
    with record_errors(rank, folder):
        raise RequestError("no such tokenizer", ["a", "b"])
    """
    with pytest.raises(RequestError, match=r"^no such tokenizer Legal: a, b\.$"):
        launch_local(command(body), 2, tmp_path)


def test_an_error_of_the_run_before_is_forgotten(tmp_path: Path, command: Command) -> None:
    with pytest.raises(RequestError):
        launch_local(command("with record_errors(rank, folder): raise RequestError('old')"), 2, tmp_path)
    assert launch_local(command("print(1)"), 2, tmp_path) == 0


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="Cannot write logs into"):
        launch_local(command("print(1)"), 2, tmp_path / "file")


STOPPING = """
import signal
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
(folder / f"ready{rank}").touch()
while not asked:
    time.sleep(0.02)
(folder / f"saved{rank}").touch()
"""
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
(folder / f"ready{rank}").touch()
hang()
"""
LAUNCHER = """
import sys
from pathlib import Path
from meshwright.train.launch.local import launch_local
sys.exit(launch_local(sys.argv[2:], 2, Path(sys.argv[1])))
"""


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[[list[str]], subprocess.Popen[bytes]]]:
    """Starts a launcher in a process of its own, and waits until its two ranks are ready."""
    started = []

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path), *command])
        started.append(process)
        _until(lambda: all((tmp_path / f"ready{rank}").exists() for rank in range(2)))
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def _until(done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _processes(tmp_path: Path) -> list[psutil.Process]:
    """Ranks of this test that still run."""
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.cmdline()[1:2] == [str(tmp_path / "rank_script.py")]:
                found.append(process)
        except psutil.Error:
            pass
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_job_that_is_asked_to_stop_lets_every_rank_save(
    tmp_path: Path, command: Command, launched: Launched, number: signal.Signals, code: int
) -> None:
    launcher = launched(command(STOPPING))
    launcher.send_signal(number)
    assert launcher.wait(60) == code
    assert (tmp_path / "saved0").exists()
    assert (tmp_path / "saved1").exists()


def test_a_second_ctrl_c_kills_ranks_that_do_not_stop(tmp_path: Path, command: Command, launched: Launched) -> None:
    launcher = launched(command(DEAF))
    launcher.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert launcher.poll() is None
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(60) == 130
    assert not _processes(tmp_path)


def test_a_killed_launcher_leaves_no_orphans(tmp_path: Path, command: Command, launched: Launched) -> None:
    launcher = launched(command(DEAF))
    assert len(_processes(tmp_path)) == 2
    launcher.kill()
    launcher.wait()
    _until(lambda: not _processes(tmp_path), 10)


def test_where_the_kernel_does_not_help_ranks_watch_their_launcher(tmp_path: Path, command: Command) -> None:
    body = """
    from meshwright.train.launch.orphans import watch_parent
    os.environ["MESHWRIGHT_PARENT"] = str(os.getppid())
    watch_parent(always=True)
    (folder / f"ready{rank}").touch()
    hang()
    """
    script = command(body)
    middle = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    parent = subprocess.Popen([sys.executable, "-c", middle, *script], env={**os.environ, "RANK": "0"})
    _until((tmp_path / "ready0").exists)
    parent.kill()
    parent.wait()
    _until(lambda: not _processes(tmp_path), 10)
