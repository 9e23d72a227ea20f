"""`meshwright diagnose` as a person and a program see it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli.frame import main


def dump(rank: int, sequence: int, **more: Any) -> bytes:
    entry = {
        "process_group": ("0", "default_pg"), "collective_seq_id": sequence, "p2p_seq_id": 0, "state": "scheduled",
        "profiling_name": "nccl:all_reduce", "input_sizes": [[8]], "output_sizes": [[8]], "input_dtypes": ["Float"],
        "time_created_ns": 5, "frames": [{"filename": "/job/train.py", "line": 41, "name": "step"}],
    }  # fmt: skip
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return pickle.dumps({"version": "2.9", "pg_config": groups, "entries": [entry | more]})


def test_a_hang_is_exit_code_one_with_the_rank_and_its_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace_0").write_bytes(dump(0, 8))
    (tmp_path / "trace_1").write_bytes(dump(1, 7))
    assert main(["diagnose", str(tmp_path), "--json"]) == 1
    read = json.loads(capsys.readouterr().out)
    (one,) = read["findings"]
    assert one["ranks"] == [1]
    assert "/job/train.py:41" in one["evidence"][-1]["text"]
    assert read["inputs"][0]["kind"] == "flight recorder dump"
    assert main(["diagnose", str(tmp_path)]) == 1
    assert "waits for rank 1" in " ".join(capsys.readouterr().out.split())


def test_nothing_wrong_is_exit_code_zero_and_says_what_was_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        (tmp_path / f"trace_{rank}").write_bytes(dump(rank, 8, state="completed"))
    assert main(["diagnose", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Nothing wrong found." in shown
    assert "2 dumps" in shown


@pytest.mark.parametrize("name", ["absent", "notes.txt"])
def test_nothing_to_read_is_exit_code_two_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert main(["diagnose", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
