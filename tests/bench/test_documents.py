"""results.json: what is written is read back exactly, and nothing else is read."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright.bench.documents import (
    LARGEST,
    ResultsError,
    bench_document,
    bench_from_document,
    read_results,
    results_text,
    write_results,
)
from meshwright.bench.result import Bench, Row, Spread
from tests.report.example import bench as example

SMALL = Bench("2026-01-02T03:04:05Z", "meshwright bench", {"model": "m", "seq_len": 8}, {"ranks": 2}, "ddp2",
              (Row("ddp2", "ddp2 mbs1", 2, "done", step=Spread(0.1, 0.09, 0.12, (0.1, 0.12)), phases={"forward": 0.03}),
               Row("tp2", "tp2 mbs1", 2, "failed", "rank 1: ü </script>")))  # fmt: skip


@pytest.mark.parametrize("bench", [SMALL, example()], ids=["small", "every kind of row"])
def test_what_is_written_is_read_back(bench: Bench, tmp_path: Path) -> None:
    path = write_results(bench, tmp_path / "run")
    assert path == tmp_path / "run" / "results.json"
    assert read_results(path) == read_results(path.parent) == bench
    # A strict reader of another language reads it too.
    text = path.read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["rows"][1]["layout"] == bench.rows[1].layout
    assert results_text(read_results(path)) == text


def test_every_field_is_a_key_of_its_name() -> None:
    document = bench_document(SMALL)
    assert list(document) == [
        "created", "command", "work", "machine", "baseline", "rows", "agreement", "planned", "finished", "drift",
        "version",
    ]  # fmt: skip
    assert document["version"] == 1
    assert document["rows"][0]["step"] == {"median": 0.1, "low": 0.09, "high": 0.12, "values": [0.1, 0.12]}
    assert document["rows"][1]["step"] is None


def test_a_diverged_loss_survives() -> None:
    row = replace(SMALL.rows[0], loss=(1.5, math.inf, -math.inf, math.nan), loss_error=math.nan)
    text = results_text(replace(SMALL, rows=(row,)))
    back = bench_from_document(json.loads(text, parse_constant=pytest.fail)).rows[0]
    assert back.loss[:3] == (1.5, math.inf, -math.inf)
    assert math.isnan(back.loss[3])
    assert back.loss_error is not None
    assert math.isnan(back.loss_error)


def test_numbers_keep_every_bit() -> None:
    values = (0.1 + 0.2, 1 / 3, 5e-324, sys.float_info.max, 2.0**53 + 2)
    row = replace(SMALL.rows[0], loss=values)
    assert bench_from_document(json.loads(results_text(replace(SMALL, rows=(row,))))).rows[0].loss == values


def test_a_whole_number_is_a_time_too() -> None:
    document = bench_document(SMALL)
    document["rows"][0]["step"]["median"] = 1
    step = bench_from_document(document).rows[0].step
    assert step is not None
    assert type(step.median) is float


def test_a_field_with_a_default_may_be_absent() -> None:
    document = bench_document(SMALL)
    del document["planned"], document["rows"][0]["traffic"]
    assert bench_from_document(document) == SMALL


def changed(path: str, value: Any) -> dict[str, Any]:
    """The small document with one place set; a value of `...` deletes it."""
    document = bench_document(SMALL)
    *way, last = path.split(".")
    place: Any = document
    for key in way:
        place = place[int(key) if key.isdigit() else key]
    if value is ...:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("version", 2, "version 2, which this Meshwright cannot read. Legal: 1."),
        ("version", "1", 'version "1"'),
        ("version", True, "version true"),
        ("version", ..., "version is missing"),
        ("created", ..., "created is missing"),
        ("created", 5, "created is 5, not text"),
        ("rows", None, "rows is null, not a list"),
        ("rows", {}, "rows is an object, not a list"),
        ("rows.1", "tp2", 'rows[1] is "tp2", not an object'),
        ("rows.0.ranks", 2.5, "rows[0].ranks is 2.5, not a whole number"),
        ("rows.0.ranks", True, "rows[0].ranks is true, not a whole number"),
        ("rows.0.layout", ..., "rows[0].layout is missing"),
        ("rows.0.status", "fine", 'rows[0].status is "fine". Legal: done, out of memory, failed, timed out, refused.'),
        ("rows.0.step", 0.1, "rows[0].step is 0.1, not an object"),
        ("rows.0.step.low", ..., "rows[0].step.low is missing"),
        ("rows.0.step.median", "0.1", 'rows[0].step.median is "0.1", not a number'),
        ("rows.0.step.median", None, "rows[0].step.median is null, not a number"),
        ("rows.0.step.values.1", False, "rows[0].step.values[1] is false, not a number"),
        ("rows.0.step.values.1", 10**400, "rows[0].step.values[1] is 1000"),
        ("rows.0.phases.forward", [], "rows[0].phases.forward is a list, not a number"),
        ("rows.0.phase", {}, "rows[0].phase is an unknown field. Legal: phases"),
        ("work", [], "work is a list, not an object"),
        ("agreement", {"rows": 3}, "agreement.spearman is missing"),
    ],
)  # fmt: skip
def test_a_wrong_document_is_refused_with_the_place(path: str, value: Any, told: str) -> None:
    with pytest.raises(ResultsError) as caught:
        bench_from_document(changed(path, value), "run/results.json")
    assert str(caught.value).startswith("run/results.json")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cut short"),
        (b"[1, 2]", "holds a list"),
        (b"null", "holds null"),
        (results_text(SMALL).encode()[:-40], "cut short"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"version": NaN}', "NaN is no JSON number"),
        (b"[" * 200_000, "nested too deep"),
        (b'{"version": ' + b"1" * 5000 + b"}", "is not JSON"),
    ],
    ids=["empty", "list", "null", "cut", "bytes", "nan", "deep", "digits"],
)
def test_a_file_that_is_no_results_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_bytes(content)
    with pytest.raises(ResultsError) as caught:
        read_results(tmp_path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    with file.open("wb") as opened:
        opened.truncate(int(LARGEST) + 1)
    with pytest.raises(ResultsError, match="128 MiB at most"):
        read_results(file)


@pytest.mark.parametrize("missing", ["", "results.json", "run/results.json"])
def test_a_missing_file_is_one_message(missing: str, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no results of a bench at"):
        read_results(tmp_path / missing)


def test_what_json_cannot_hold_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    write_results(SMALL, tmp_path)
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(ResultsError, match="cannot be written as JSON"):
        write_results(replace(SMALL, work={"model": object()}), tmp_path)
    assert (tmp_path / "results.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="Cannot write"):
        write_results(SMALL, tmp_path / "file" / "run")
