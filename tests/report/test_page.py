"""The page's text: everything that comes from a bench is escaped, and nothing is loaded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("altair")

from meshwright.bench.result import FAILED, Bench, Row, Spread
from meshwright.report.figures import Drawn, draw
from meshwright.report.page import page
from meshwright.report.shell import script_json
from meshwright.report.study import make_study
from tests.report.example import MACHINE, WORK, bench, done, rows

EVIL = "</script><img src=x onerror=alert(1)>\"'`&{{7*7}}\u2028<!--"


def html(
    found: Bench | list[tuple[str, Bench]], folder: Path = Path("nowhere"), charts: bool = False, **more: Any
) -> str:
    """The page without the bundle, and without charts unless they matter."""
    study = make_study(found if isinstance(found, list) else [("bench", found)])
    return page(study, draw(study) if charts else Drawn((), {}, {}), "/* bundle */", folder, **more)


class Elements(HTMLParser):
    """Tags with their attributes, and the text of the page outside script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def evil_bench() -> Bench:
    """Every text that a bench can hold is an attack."""
    row = done(EVIL, 0.1, 1.0, layout=EVIL, predicted=0.1)
    parts = {EVIL: 0.05}
    kind = replace(row.traffic[0], axis=EVIL, collective=EVIL)
    bad = replace(row, phases=parts, memory_parts=parts, traffic=(kind,), memory_kind=EVIL, trace=EVIL, gantt=(
        replace(rows()[2].gantt[0], kind=EVIL),), prediction_missing=EVIL)  # fmt: skip
    failed = Row(f"{EVIL}2", EVIL, 4, FAILED, reason=EVIL)
    work, machine = WORK | {"model": EVIL, EVIL: EVIL}, MACHINE | {"device": EVIL, "list": [EVIL]}
    return bench(rows=(bad, failed), baseline=EVIL, work=work, machine=machine, command=EVIL, created=EVIL)


def test_no_text_of_a_bench_becomes_markup() -> None:
    plain, evil = (
        Elements(html(bench(rows=rows()[2:3] + rows()[-1:]), charts=True)),
        Elements(html([(EVIL, evil_bench())], charts=True)),
    )
    assert {tag for tag, _ in evil.tags} <= {tag for tag, _ in plain.tags}
    assert "img" not in {tag for tag, _ in evil.tags}
    assert not any(name.startswith("on") for _, attributes in evil.tags for name in attributes)
    assert [tag for tag, _ in evil.tags].count("script") == 5
    # It is shown as it is.
    assert "<img src=x onerror=alert(1)>" in evil.text


def test_the_data_of_the_page_survives_every_text() -> None:
    text = html(evil_bench(), charts=True)
    # But for letters that cannot be printed: Vega's expressions refuse the line separator.
    shown = EVIL.replace("\u2028", " ")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert data["rows"]["name"] == [shown]


def test_json_in_a_script_has_no_letter_that_could_end_it() -> None:
    text = script_json({"a": EVIL})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": EVIL}


def test_the_page_names_nothing_to_load() -> None:
    text = html(bench(), charts=True)
    tags = Elements(text).tags
    assert not any({"src", "srcset", "data", "action"} & attributes.keys() for _, attributes in tags)
    assert not any(tag in ("link", "iframe", "img", "object") for tag, _ in tags)
    assert "@import" not in text
    assert "url(" not in text
    assert "default-src &#x27;none&#x27;" in text


def test_headings_labels_and_language_are_there() -> None:
    tags = Elements(html(bench(), charts=True)).tags
    names = [tag for tag, _ in tags]
    assert names.count("h1") == 1
    assert names.index("h1") < names.index("h2") < names.index("h3")
    assert ("html", {"lang": "en"}) in tags
    assert all(attributes["data-label"] for tag, attributes in tags if "data-label" in attributes)
    assert all(attributes.get("scope") for tag, attributes in tags if tag == "th")


def test_failed_rows_stand_in_the_table_with_their_reason() -> None:
    text = Elements(html(bench())).text
    assert "out of memory: rank 2: 14.2 GiB asked, 12 GiB free" in text
    assert "refused: 8 ranks are asked for, the machine has 4" in text


def test_the_table_shows_the_measured_numbers() -> None:
    (line,) = re.findall(r'<tr class="">(?:(?!</tr>).)*>fsdp4<.*?</tr>', html(bench()))
    cells = [cell for cell in re.split(r"<[^>]*>", line) if cell]
    # 109 ms ± 2 %, 8192 tokens in it; predicted 115 ms, which is 5.5 % more; 20 % exposed of 105 % in all parts.
    assert cells == [
        "4", "fsdp4", "mbs8", "4", "109 ms", "± 2.18 ms", "75,156", "27.5 %", "3.8 GiB",
        "predicted 4.18 GiB", "21.8 ms", "20.0 %", "115 ms", "+5.5 %", "4", "measured 4", "1.0e-04", "done",
    ]  # fmt: skip


def test_columns_that_no_row_fills_are_left_out() -> None:
    text = html(bench(rows=(done("ddp4", 0.1, 1.0),)))
    assert "tokens/s</button>" in text
    assert "joules a step</button>" not in text
    assert "predicted step</button>" not in text


def test_a_running_bench_says_how_far_it_is_and_loads_anew() -> None:
    text = html(bench(planned=40, finished=17), running=True)
    assert "17 of 40 runs done" in text
    assert '<meta http-equiv="refresh" content="10">' in text


@pytest.mark.parametrize("finished", [17, 40])
def test_a_bench_at_rest_does_not_load_anew(finished: int) -> None:
    text = html(bench(planned=40, finished=finished))
    assert "refresh" not in text.split("<style>")[0]
    assert ("17 of 40 runs done; the bench was stopped before its end" in text) == (finished == 17)


def test_a_chart_that_is_left_out_says_why_in_its_place() -> None:
    text = html(bench(rows=(done("ddp4", 0.1, 1.0),)), charts=True)
    assert "<h3>Pipeline schedule</h3>" in text
    assert "Left out: no measured layout is a pipeline with a traced step." in text


def test_a_trace_is_linked_only_if_it_lies_in_the_page_s_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "traces").mkdir(parents=True)
    (folder / "traces" / "a b.json").write_text("{}")
    (tmp_path / "secret").write_text("")

    def linked(trace: str) -> bool:
        return 'class="under" href="' in html(bench(rows=(done("ddp4", 0.1, 1.0, trace=trace),)), folder)

    assert 'href="./traces/a%20b.json"' in html(bench(rows=(done("ddp4", 0.1, 1.0, trace="traces/a b.json"),)), folder)
    for other in (
        "",
        "traces/none.json",
        "../secret",
        str(tmp_path / "secret"),
        "javascript:alert(1)",
        "a\0b",
        "traces",
        "x" * 5000,
    ):
        assert not linked(other)


def test_runs_of_different_work_carry_a_warning() -> None:
    text = html([("a", bench()), ("b", bench(work=WORK | {"seq_len": 512}))])
    assert '<p class="warning">The runs cannot be compared' in text
    assert "seq_len (a: 256, b: 512)" in text
    assert "warning" not in html([("a", bench()), ("b", bench())]).split("</style>")[1].split("<script")[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 0.0, -1.0])
def test_impossible_numbers_are_survived(value: float) -> None:
    row = done("ddp4", 0.1, 1.0, predicted=0.1, gantt=rows()[2].gantt[:1], bubble=value, bubble_formula=value)
    assert row.predicted is not None
    bad = replace(
        row, tokens_per_second=value, mfu=value, memory_bytes=value, loss=(value,), grad_norm=(value, 1.0), ranks=0,
        predicted=replace(row.predicted, step_seconds=value, memory_bytes=value), joules_per_step=value,
        phases={"forward": value}, gantt=(replace(row.gantt[0], start=value),), step=Spread(0.1, 0.1, value),
        loss_error=value,
    )  # fmt: skip
    text = html(bench(rows=(bad, replace(bad, label="ddp2", layout="ddp2 mbs8"))), charts=True)
    assert "ddp2" in Elements(text).text
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert "1e+300" not in data[1]
