"""The files of a report: whole, in the folder, and a clear message where they cannot be."""

from __future__ import annotations

import builtins
import json
import os
from pathlib import Path
from typing import Any

import pytest

from meshwright.bench.documents import read_results
from meshwright.report import ReportError, bundle, write_report
from tests.report.example import bench, done, large

SMALL = bench(rows=(done("ddp4", 0.1, 1.0),))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that takes no time."""
    pytest.importorskip("altair")
    monkeypatch.setattr(bundle, "vega_javascript", lambda: "/* bundle */")


@pytest.mark.usefixtures("quick")
def test_page_results_and_pictures_lie_in_the_folder(tmp_path: Path) -> None:
    report = write_report(SMALL, tmp_path / "new" / "run")
    assert report.page == tmp_path / "new" / "run" / "report.html"
    assert set(os.listdir(report.page.parent)) == {
        "report.html", "results.json", *(f"{key}.png" for key in report.charts)
    }  # fmt: skip
    assert [path.stem for path in report.pictures] == list(report.charts)
    assert "pareto" in report.charts
    assert "schedule" in report.left_out
    assert read_results(report.page.parent) == SMALL


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", [{"pictures": False}, {"running": True}])
def test_pictures_are_written_once_the_bench_is_done_and_if_they_are_wanted(
    how: dict[str, bool], tmp_path: Path
) -> None:
    assert write_report(SMALL, tmp_path, **how).pictures == ()
    assert set(os.listdir(tmp_path)) == {"report.html", "results.json"}


@pytest.mark.usefixtures("quick")
def test_results_of_several_benches_have_their_names(tmp_path: Path) -> None:
    report = write_report([("a/b", SMALL), ("..", bench())], tmp_path, pictures=False)
    assert [path.name for path in report.results] == ["a_b.results.json", "bench.results.json"]
    assert read_results(report.results[1]) == bench()


@pytest.mark.parametrize("runs", [[], [("a", SMALL), ("a", SMALL)]])
def test_several_benches_need_names_that_differ(runs: list[Any], tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="different names"):
        write_report(runs, tmp_path)


@pytest.mark.usefixtures("quick")
def test_a_large_bench_stays_small_on_the_page(tmp_path: Path) -> None:
    # The bundle, which is left out here, has 0.9 MB of the 8 MB.
    report = write_report(large(50, 100), tmp_path, pictures=False)
    assert report.page.stat().st_size < 2_000_000
    assert report.page.read_text().count('"curves"') == 4


@pytest.mark.parametrize("module", ["altair", "vl_convert"])
def test_a_missing_module_is_one_message(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == module or name.startswith("meshwright.report.figures"):
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ReportError) as caught:
        write_report(SMALL, tmp_path)
    assert str(caught.value) == (
        f'The report needs {module}, which is not installed here: pip install "meshwright[report]".'
    )


@pytest.mark.usefixtures("quick")
def test_a_folder_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="Cannot write"):
        write_report(SMALL, tmp_path / "file" / "run")


def test_the_bundle_is_made_once_and_cannot_end_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    pytest.importorskip("altair")
    made = []

    def make(snippet: str, vl_version: str) -> str:
        made.append(vl_version)
        return 'x = "</script>"'

    monkeypatch.setattr(vl_convert, "javascript_bundle", make)
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    assert [bundle.vega_javascript() for _ in range(3)] == ['x = "<\\/script>"'] * 3
    assert made == [bundle.vega_lite_version()]
    # A cache that cannot be written costs time and nothing else.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "file"))
    assert bundle.vega_javascript() == 'x = "<\\/script>"'


def test_the_version_of_vega_lite_is_altair_s() -> None:
    altair = pytest.importorskip("altair")
    assert altair.SCHEMA_VERSION.startswith(f"v{bundle.vega_lite_version()}.")


@pytest.mark.usefixtures("quick")
def test_the_page_s_data_is_json(tmp_path: Path) -> None:
    text = write_report(bench(), tmp_path, pictures=False).page.read_text()
    for name in ("data", "specs", "config"):
        assert json.loads(text.split(f'id="{name}">')[1].split("</script>")[0])
