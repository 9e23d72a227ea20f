"""The verb `bench`, from its command line to its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.cli.frame import main

NANO = str(Path(__file__).parents[1] / "check" / "models" / "nano-llama.json")
WORK = ["--model", NANO, "--seq-len", "16", "--global-batch", "8", "--steps", "2", "--warm-up", "2", "--device", "cpu"]


def bench(*words: str) -> int:
    return main(["bench", *WORK, *words])


def test_a_bench_measures_what_can_run_and_says_why_the_rest_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench"
    words = ["--layouts", "ddp2 mbs2, tp3", "--repeats", "1", "--trace", "0", "--out", str(out), "--json"]
    assert bench(*words) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    rows = {row["label"]: row for row in found["rows"]}
    assert set(rows) == {"one process", "ddp2 mbs2", "tp3"}
    assert rows["tp3"]["status"] == "refused"
    assert "3 tensor ranks" in rows["tp3"]["reason"]
    assert rows["ddp2 mbs2"]["status"] == "done"
    assert rows["ddp2 mbs2"]["loss_error"] < 1e-5
    assert len(rows["ddp2 mbs2"]["step"]["values"]) == 2
    assert found["finished"] == found["planned"] == 2
    assert json.loads((out / "results.json").read_text())["baseline"] == "ddp2 mbs2"
    # The same command again finds all of it done.
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/outcome.json")}
    assert bench(*words) == 0
    again = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in again["rows"]] == [row["step"] for row in found["rows"]]
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/outcome.json")} == before
    # Another bench does not get into its folder.
    assert bench("--layouts", "fsdp2", "--out", str(out)) == 2
    assert "--fresh" in capsys.readouterr().err


def test_a_run_that_dies_is_a_row_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--layouts", "ddp2, fsdp2", "--no-single", "--repeats", "1", "--trace", "0", "--timeout", "1"]
    # As many steps as no machine makes in a second.
    assert bench(*words, "--steps", "5000", "--out", str(tmp_path), "--json") == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["status"] for row in rows] == ["timed out", "timed out"]
    assert "after 1 s" in rows[0]["reason"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--layouts", "ddp2 tp"], "tp"),
        (["--layouts", "ddp2", "--sweep", "tp=2"], "mbs=1,2,4"),
        (["--layouts", "ddp2", "--baseline", "fsdp4"], "baseline"),
        (["--layouts", "tp3"], "tensor ranks"),
        (["--layouts", "ddp2", "--precision", "fp7"], "fp7"),
        (["--layouts", "ddp2", "--cluster", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_is_refused_before_a_rank_starts(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*words, "--out", str(tmp_path / "new")) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not (tmp_path / "new").exists()
