"""What a failing rank leaves behind, and says where no launcher of ours speaks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from meshwright.train.launch.error_files import error_path, read_errors, write_error
from meshwright.train.launch.failures import Failure, failure_of

RANK = """
import os, sys, time
from pathlib import Path
from meshwright.spec.errors import RequestError
from meshwright.train.launch.error_files import record_errors
rank, folder, what = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
with record_errors(rank, folder):
    if what == "echo":
        raise RuntimeError("[pair.cc:547] Connection closed by peer [127.0.0.1]:3547")
    if what == "request":
        raise RequestError("no such file")
    if what == "error":
        raise ValueError("mine")
"""


def _rank(rank: int, folder: Path, what: str, **variables: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MESHWRIGHT_")}
    return subprocess.Popen(
        [sys.executable, "-c", RANK, str(rank), str(folder), what],
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, **variables},
    )


def test_a_rank_that_lost_a_peer_names_that_peers_error_in_one_line(tmp_path: Path) -> None:
    lost = _rank(0, tmp_path, "echo")
    while not read_errors(tmp_path):
        time.sleep(0.02)
    write_error(tmp_path, failure_of(1, ValueError("mine")))
    assert lost.communicate(timeout=60)[1] == "rank 0 stops: rank 1 failed with ValueError: mine\n"
    assert lost.returncode == 1


def test_a_rank_that_lost_a_peer_that_says_nothing_shows_what_it_has(tmp_path: Path) -> None:
    error = _rank(0, tmp_path, "echo").communicate(timeout=60)[1]
    assert error.startswith("rank 0 failed:\nTraceback")
    assert "Connection closed by peer" in error


def test_a_request_is_its_message_and_exit_code_2(tmp_path: Path) -> None:
    rank = _rank(0, tmp_path, "request")
    assert rank.communicate(timeout=60)[1] == "error: no such file\n"
    assert rank.returncode == 2
    assert read_errors(tmp_path)[0].is_request


def test_an_error_leaves_a_file_and_a_traceback_in_the_log(tmp_path: Path) -> None:
    _rank(3, tmp_path, "error", TORCHELASTIC_ERROR_FILE=str(tmp_path / "elastic.json")).communicate(timeout=60)
    [failure] = read_errors(tmp_path)
    assert (failure.rank, failure.kind, failure.message, failure.exit_code) == (3, "ValueError", "mine", 1)
    assert (tmp_path / "logs" / "rank-0003.log").read_text() == failure.traceback
    assert json.loads((tmp_path / "elastic.json").read_text())["message"]["message"] == "ValueError: mine"


def test_a_rank_that_ends_well_leaves_nothing_and_removes_what_it_left_before(tmp_path: Path) -> None:
    write_error(tmp_path, failure_of(0, ValueError("old")))
    rank = _rank(0, tmp_path, "nothing")
    assert rank.communicate(timeout=60)[1] == ""
    assert rank.returncode == 0
    assert read_errors(tmp_path) == []


def test_files_that_are_no_errors_are_passed_over(tmp_path: Path) -> None:
    write_error(tmp_path, Failure(0, 1.0, "ValueError", "right"))
    for rank, text in enumerate(
        ("", "[]", '{"rank": 1}', error_path(tmp_path, 0).read_text().replace("1.0", '"x"')), 1
    ):
        error_path(tmp_path, rank).write_text(text)
    assert [failure.message for failure in read_errors(tmp_path)] == ["right"]
