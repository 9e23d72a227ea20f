"""`meshwright report`: what it prints, where it writes, and what it refuses."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest

from meshwright.bench.documents import results_text, write_results
from meshwright.cli.frame import main
from meshwright.cli.report import names
from meshwright.report import bundle
from tests.report.example import WORK, bench, done

pytest.importorskip("altair")

SMALL = bench(rows=(done("ddp4", 0.1, 10.0), done("fsdp4", 0.109, 3.8)), agreement=None)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "vega_javascript", lambda: "/* bundle */")


def test_a_bench_s_folder_gets_its_report_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(SMALL, tmp_path)
    assert main(["report", str(tmp_path), "--no-png"]) == 0
    out = capsys.readouterr().out
    assert "fsdp4 used 38 % of ddp4's memory and was 9 % slower" in out
    assert f"{tmp_path}/report.html (" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results.json"]


def test_the_document_has_the_promised_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_results(SMALL, tmp_path / "run")
    assert main(["report", str(file), "--out", str(tmp_path / "out"), "--no-png", "--json"]) == 0
    out, err = capsys.readouterr()
    read = json.loads(out)
    assert err == ""
    assert read["page"] == str(tmp_path / "out" / "report.html")
    assert read["results"] == [str(tmp_path / "out" / "results.json")]
    assert read["pictures"] == []
    assert "pareto" in read["charts"]
    assert "schedule" in read["left_out"]
    assert (read["comparable"], read["differences"]) == (True, {})
    assert read["summary"][0].startswith("The baseline ddp4 was fastest")


def test_several_benches_in_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_results(SMALL, Path("monday"))
    write_results(bench(rows=SMALL.rows, agreement=None, work=WORK | {"global_batch": 64}), Path("tuesday"))
    assert main(["report", "monday", "tuesday", "--no-png", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["page"] == "comparison/report.html"
    assert read["comparable"] is False
    assert read["differences"] == {"global_batch": {"monday": "32", "tuesday": "64"}}
    assert read["summary"][0].startswith("The runs cannot be compared")


def test_the_page_is_opened_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    write_results(SMALL, tmp_path)
    assert main(["report", str(tmp_path), "--no-png"]) == 0
    assert opened == []
    assert main(["report", str(tmp_path), "--no-png", "--open"]) == 0
    assert opened == [(tmp_path / "report.html").as_uri()]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "There are no results of a bench at"),
        (results_text(SMALL)[:500], "was cut short"),
        (results_text(SMALL).replace('"version": 1', '"version": 9'), "version 9"),
        (results_text(SMALL).replace('"status": "done"', '"status": 3'), "rows[0].status is 3, not text"),
    ],
)
def test_results_that_cannot_be_read_are_one_line(
    content: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_without_a_run_the_request_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 2
    assert "RUN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/x/monday"], ["monday"]),
        (["/x/monday/results.json", "/x/tuesday"], ["monday", "tuesday"]),
        (["/x/a/run", "/x/b/run"], ["a/run", "b/run"]),
        (["/x/run", "/x/run", "/y"], ["run (1)", "run (2)", "y"]),
        (["/x/monday.results.json", "/x/tuesday.results.json"], ["monday", "tuesday"]),
    ],
)
def test_runs_are_named_by_what_makes_their_paths_differ(paths: list[str], expected: list[str]) -> None:
    assert names([Path(path) for path in paths]) == expected
