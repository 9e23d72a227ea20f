"""`meshwright history`: the order of the runs."""

from __future__ import annotations

import json

import pytest

from meshwright.cli.frame import main


def test_runs_of_one_model_and_device_stand_together_the_fastest_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "llama", "--limit", "5000", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    keys = [(run["model"].lower(), run["device"]) for run in runs]
    assert keys == sorted(keys)
    speeds = [run["tokens_per_second_per_device"] or 0.0 for run in runs]
    pairs = zip(keys, speeds, keys[1:], speeds[1:], strict=False)
    assert all(fast >= slow for one, fast, other, slow in pairs if one == other)


def test_people_see_the_precision(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["history", "llama", "--device", "H100", "--limit", "5"]) == 0
    page = capsys.readouterr().out
    assert "precision" in page
    assert "bf16" in page
