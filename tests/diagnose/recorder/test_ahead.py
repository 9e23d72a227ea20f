"""Many dumps, which helpers read: the diagnosis is the same as that of one process."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.diagnosis import Diagnosis, diagnose
from meshwright.diagnose.recorder import ahead

RANKS = 24
LAGGARD = 13


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Of 24 ranks; one of them did not enter the last of four collectives."""
    for rank in range(RANKS):
        entries = [
            {
                "process_group": ("0", "default_pg"), "collective_seq_id": at, "p2p_seq_id": 0,
                "profiling_name": "nccl:all_reduce", "state": "completed" if at < 3 else "started",
                "input_sizes": [[8]], "output_sizes": [[8]], "input_dtypes": ["Float"], "frames": [],
                "time_created_ns": 10**9 * at,
            }
            for at in range(3 if rank == LAGGARD else 4)
        ]  # fmt: skip
        groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))}}
        content = {"version": "2.10", "pg_config": groups, "entries": entries}
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    return tmp_path


@pytest.fixture
def with_helpers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], tuple[Diagnosis, int]]:
    """Diagnoses as if the dumps were large, on three cores; says how many helpers were started too."""
    started: list[Any] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            started.append(self)
            super().__init__(*args, **kwargs)

    def run(path: Path) -> tuple[Diagnosis, int]:
        monkeypatch.setattr(ahead, "WORTH", 1)
        monkeypatch.setattr(ahead, "cores", lambda: 3)
        monkeypatch.setattr(ahead.subprocess, "Popen", Popen)
        found = diagnose([path])
        assert all(one.returncode is not None for one in started), "a helper outlives the diagnosis"
        return found, len(started)

    return run


def test_helpers_change_nothing_about_the_diagnosis(dumps: Path, with_helpers: Any) -> None:
    alone = diagnose([dumps])
    assert [one.ranks for one in alone.findings] == [(LAGGARD,)]
    assert with_helpers(dumps) == (alone, 2)


def test_what_is_wrong_with_a_dump_is_said_though_a_helper_met_it(dumps: Path, with_helpers: Any) -> None:
    whole = (dumps / "rank_0").read_bytes()
    (dumps / "rank_0").write_bytes(whole[:-40])
    (dumps / "rank_1").write_bytes(whole.replace(b"profiling_name", b"profiling_mane"))
    (dumps / "rank_2").write_bytes(b"\x80\x02cos\nsystem\nX\x09\x00\x00\x00pg_config\x85R.")
    (dumps / "rank_3_again").write_bytes(whole)
    alone = diagnose([dumps])
    assert sum(bool(one.problem) for one in alone.inputs) == 4
    assert with_helpers(dumps) == (alone, 2)


def test_a_helper_that_dies_loses_nothing(dumps: Path, with_helpers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = diagnose([dumps])
    monkeypatch.setattr(ahead.sys, "executable", "/bin/false")
    assert with_helpers(dumps) == (alone, 2)


def test_a_module_in_the_folder_that_is_diagnosed_is_not_run(
    dumps: Path, with_helpers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dumps / "json.py").write_text("open('was_run', 'w')\n")
    monkeypatch.chdir(dumps)
    assert with_helpers(dumps)[1] == 2
    assert not (dumps / "was_run").exists()
