"""`meshwright backtest`: the keys that other tools read, the row file, and what a person sees."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli.frame import main

SMALL = ["backtest", "--source", "simumax"]
COLUMNS = (
    "id source layers hidden heads vocab seq_len gpu gpus dp tp pp microbatch global_batch step_time_s recompute oom"
)
TABLE = f"""{COLUMNS.replace(" ", ",")}
good,mine,24,2048,16,50304,2048,A100-80GB,8,8,1,1,1,64,2.5,none,n
no-batch,mine,24,2048,16,50304,2048,A100-80GB,8,8,1,1,1,,2.5,none,
huge,mine,96,12288,96,50304,2048,A100-80GB,8,8,1,1,1,64,,none,y
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    return str(path)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


def test_the_document_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    read = document(capsys, "backtest", "--source", "internevo")
    assert set("rows priced sources memory oom groups unpriced".split()) <= read.keys()
    assert set("rows mape median p90 bias".split()) <= read["sources"]["internevo"].keys()
    for group in read["groups"]:
        assert set("key rows regret spearman random_regret".split()) <= group.keys()
        assert group["rows"] >= 6
    assert read["groups"]


def test_a_table_of_ones_own_is_priced_and_nothing_is_dropped_silently(
    capsys: pytest.CaptureFixture[str], mine: str
) -> None:
    read = document(capsys, "backtest", "--runs", mine)
    assert (read["rows"], read["priced"]) == (3, 2)
    assert read["unpriced"] == [{"id": "no-batch", "reason": "global_batch is not stated"}]
    assert read["sources"]["mine"]["rows"] == 1
    # 175e9 parameters whole on every device
    assert read["oom"]["out of memory"] == {"does not fit": 1}


def test_the_row_file_has_a_line_for_every_price(capsys: pytest.CaptureFixture[str], mine: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    read = document(capsys, "backtest", "--runs", mine, "--rows-out", str(path))
    with path.open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["good", "huge"]
    error = float(rows["good"]["predicted_step_seconds"]) / 2.5 - 1
    assert read["sources"]["mine"]["bias"] == pytest.approx(error)
    assert rows["huge"]["verdict"] == "does not fit"


def test_roles_choose_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {role: document(capsys, *SMALL, "--role", role)["rows"] for role in ("fit", "validate", "all")}
    assert rows["all"] == rows["fit"] + rows["validate"]
    assert min(rows.values()) > 0


def test_a_device_chooses_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(document(capsys, "backtest", "--device", "MI300X")["devices"]) == ["MI300X"]


def test_people_see_errors_verdicts_reasons_and_the_worst_rows(capsys: pytest.CaptureFixture[str], mine: str) -> None:
    assert main(["backtest", "--runs", mine]) == 0
    out = capsys.readouterr().out
    for text in ("Step time by source", "MAPE", "does not fit", "Worst 1 step times", "global_batch is not stated"):
        assert text in out
    assert "no-batch" not in out
    assert main(["backtest", "--runs", mine, "--unpriced"]) == 0
    assert "no-batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "vtrian"], "Legal: vtrain"),
        (["--device", "H1000"], "H100"),
        (["--role", "validat"], "Legal: validate, fit, all"),
        (["--runs", "nowhere.csv"], "nowhere.csv"),
        (["--source", "simumax", "--rows-out", "/nowhere/prices.csv"], "/nowhere/prices.csv cannot be written"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["backtest", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_table_without_any_price_is_answered_with_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(line for line in TABLE.splitlines() if not line.startswith(("good", "huge"))))
    assert main(["backtest", "--runs", str(path)]) == 1
    assert "0 of 1 runs scored" in capsys.readouterr().out


def test_a_table_is_never_replaced_by_its_own_prices(capsys: pytest.CaptureFixture[str], mine: str) -> None:
    assert main(["backtest", "--runs", mine, "--rows-out", mine]) == 2
    assert "--rows-out" in capsys.readouterr().err
    assert Path(mine).read_text() == TABLE
