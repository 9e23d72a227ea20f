"""`meshwright rehearse`: the document, the files, exit codes, and refusals in the program's own words."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch.cuda._memory_viz as viewer

from meshwright.cli.frame import main

JOB = ["rehearse", "tiny-gpt2", "--cluster", "8xH100", "--seq-len", "64", "--global-batch", "8"]


def test_the_document_and_the_files_of_a_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*JOB, "--layout", "fsdp4 tp2", "--out", str(tmp_path), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    (rank,) = read["ranks"]
    assert rank["rank"] == 0
    assert sum(rank["parts"].values()) == rank["peak_bytes"]
    assert all(line["agrees"] for line in rank["compared"])
    assert read["assumptions"]
    names = ["timeline.json", "snapshot.pickle", "collectives.txt", "memory.html", "memory.png"]
    assert [Path(name).name for name in read["files"]] == names

    trace = json.loads((tmp_path / "rank-0" / "timeline.json").read_text())
    heights = [event["args"]["bytes"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert max(heights) == rank["peak_bytes"]
    assert (tmp_path / "rank-0" / "collectives.txt").read_text().splitlines() == rank["collectives"]

    saved = pickle.loads((tmp_path / "rank-0" / "snapshot.pickle").read_bytes())
    alive = highest = 0
    for event in saved["device_traces"][0]:
        alive += {"alloc": event["size"], "free_completed": -event["size"]}.get(event["action"], 0)
        highest = max(highest, alive)
    assert highest == rank["peak_bytes"]
    assert "free completed" in viewer.trace(saved)  # PyTorch's own viewer reads it
    assert any("forward micro-batch 0" in event["frames"][0]["name"] for event in saved["device_traces"][0])


def test_a_disagreement_is_exit_code_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.rehearse import compare

    monkeypatch.setattr(compare, "held", lambda *_: {"parameters": 1.0, "gradients": 1.0, "optimizer": None})
    assert main([*JOB, "--layout", "ddp8"]) == 1
    out = capsys.readouterr().out
    assert "DISAGREES" in out
    assert "Memory at the peak" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layout", "ddp16"], "ddp16 needs 16 devices, 8xH100 has 8"),
        (["--layout", "tp3"], "tensor ranks"),
        (["--layout", "fsdp8", "--rank", "8"], "has no rank 8. Legal: 0 to 7"),
        (["--layout", "fsdp8", "--ranks", "some"], "Legal: a number, stage-firsts, all-distinct"),
        (["--layout", "fsdp8", "--rank", "1", "--ranks", "all-distinct"], "not both"),
        (["--layout", "nonsense"], "nonsense"),
        (["--layout", "fsdp8", "--optimizer", "muon"], "none answers. Legal: adamw, sgd, lamb"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JOB, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_plans_best_layouts_are_rehearsed(capsys: pytest.CaptureFixture[str]) -> None:
    nano = str(Path(__file__).parent.parent / "train" / "loop" / "nano-llama.json")
    arguments = ["--cluster", "2xH100", "--seq-len", "64", "--global-batch", "8", "--top", "1", "--rehearse", "1"]
    assert main(["plan", nano, *arguments, "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    (one,) = read["rehearsed"]
    assert one["layout"] == read["plans"][0]["layout"]
    assert one["verdict"] == "confirmed"
    assert 0 < one["rehearsed_bytes"] < 2**30
