"""What JSON output looks like."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest

from meshwright.cli.screen import plain, print_json, progress_line


@dataclass(frozen=True)
class Point:
    y: float
    x: tuple[int, ...]


def test_numbers_that_json_does_not_know_become_null() -> None:
    assert plain({"a": math.inf, "b": [math.nan, -math.inf, 1.5]}) == {"a": None, "b": [None, None, 1.5]}


def test_numpy_scalars_are_numbers() -> None:
    assert plain([np.int64(3), np.float64(0.5), np.bool_(True), np.float32(np.inf)]) == [3, 0.5, True, None]


def test_keys_keep_the_order_of_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"z": Point(1.0, (2, 3)), "a": 0})
    out = capsys.readouterr().out
    assert list(json.loads(out)) == ["z", "a"]
    assert json.loads(out)["z"] == {"y": 1.0, "x": [2, 3]}
    assert out.index('"y"') < out.index('"x"')


def test_progress_is_a_line_of_the_terminal_that_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress_line("layouts decided") as show:
        show(1, 4)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_line("layouts decided") as show:
        show(1_000, 4_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert "1,000 of 4,000 layouts decided (25%)" in err
    assert err.endswith("\r\x1b[K")
