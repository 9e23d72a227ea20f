"""`meshwright check`: keys that other tools read, exit codes, refusals before anything starts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.check import sweep
from meshwright.check.result import CheckResult, LayoutResult, Worst
from meshwright.cli.frame import main
from meshwright.train.launch import pool

NANO = Path(__file__).parent.parent / "check" / "models" / "nano-llama.json"
SMALL = ["check", "--model", str(NANO), "--seq-len", "8", "--global-batch", "4", "--steps", "1"]


def test_the_document_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--layouts", "ddp2, tp2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    read = json.loads(out)
    assert len(read["reference"]["loss"]) == len(read["reference"]["grad_norm"]) == 1
    assert read["passed"] is True
    assert [one["layout"] for one in read["layouts"]] == ["ddp2", "tp2"]
    promised = "layout passed loss_error grad_norm_error worst_gradient worst_update explanation traffic seconds"
    for one in read["layouts"]:
        assert set(promised.split()) <= one.keys()
        assert one["passed"] is True
        assert one["explanation"] == ""
        assert one["parameters"] == read["parameters"]
        assert one["worst_gradient"].keys() == one["worst_update"].keys() == {"name", "error"}
        assert one["traffic"]
        for row in one["traffic"]:
            assert row.keys() == {"axis", "collective", "count", "bytes", "expected_bytes"}
    # DDP with 2 ranks: every parameter's gradient once, 8 bytes a number.
    (row,) = read["layouts"][0]["traffic"]
    assert (row["axis"], row["collective"]) == ("data", "all-reduce")
    assert row["bytes"] == row["expected_bytes"] == 8 * read["parameters"]


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_layout_that_differs_is_exit_code_1_and_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    wrong = Worst("layers.0.attention.q.weight", math.inf)
    told = "gradients × 2 = tensor degree"
    failed = LayoutResult("tp2", False, 2, (1, 2), 0.5, 0.5, wrong, wrong, 10, True, told, 1e-9)
    right = replace(failed, layout="ddp2", passed=True, explanation="")
    found = CheckResult("nano", "float64", 10, (4.0,), (2.0,), (right, failed))
    monkeypatch.setattr(sweep, "check_layouts", lambda *_: found)
    assert main([*SMALL, "--layouts", "ddp2, tp2", *(["--json"] if form == "json" else [])]) == 1
    out = capsys.readouterr().out
    if form == "json":
        read = json.loads(out)
        assert read["passed"] is False
        assert read["layouts"][1]["explanation"] == told
        assert read["layouts"][1]["worst_gradient"] == {"name": "layers.0.attention.q.weight", "error": None}
        return
    assert "DIFFERS" in out
    assert "1 of 2 layouts compute what one process computes" in out


def test_micro_batches_of_a_layout_are_checks_own_and_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--layouts", "ddp2 mbs2, tp3"])  # refused before a rank starts
    assert "mbs is left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--model", "llama-2-7b"], "6,738,415,616 parameters"),
        (["--layouts", "tp3"], "4 attention heads cannot be split over 3"),
        (["--layouts", "ddp2, tp3"], "In tp3: "),
        (["--layouts", "dpd2"], "Legal: ddp2"),
        (["--layouts", "ep2 ddp2"], "no experts"),
        (["--layouts", "ps2x1"], "no parameter servers"),
        (["--layouts", "ddp8"], "--global-batch 16"),
        (["--layouts", "cp3"], "3"),
        (["--layouts", "all", "--ranks", "1"], "No layout of so few ranks"),
        (["--layouts", "all", "--global-batch", "1"], "No layout of so few ranks"),
        (["--layouts", ""], "empty"),
        (["--dtype", "bf16"], "Legal: float64, float32"),
        (["--optimizer", "lamb"], "Legal: adamw, sgd"),
        (["--model", "tiny-lama"], "Legal: tiny-llama"),
    ],
)
def test_a_wrong_request_is_one_message_and_starts_no_rank(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("ranks were started")

    monkeypatch.setattr(pool, "PoolProcesses", start)
    assert main([*SMALL, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert "Traceback" not in err
