"""The page in a real browser: nothing loaded, no error, every chart drawn, readable wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")
pytest.importorskip("playwright")

from meshwright.report import Report, write_report
from meshwright.report.rehearsed import write_memory
from tests.report.browser import browser, chromium, opened
from tests.report.example import LONG, bench, large, micro_batches, rows
from tests.report.test_page import evil_bench
from tests.report.test_rehearsed import DEVICE, FACTS, FOUND

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")

VIEWS = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
CHARTS = """() => [...document.querySelectorAll('.chart')].map(place => {
  const box = place.getBoundingClientRect(), svg = place.querySelector('svg');
  const inside = element => { const b = element.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; };
  const seen = element => element.textContent !== '' && getComputedStyle(element).opacity !== '0';
  return {
    key: place.id, box: inside(place), svg: svg && inside(svg), label: svg && svg.getAttribute('aria-label'),
    marks: [...place.querySelectorAll('.mark-rect path, .mark-symbol path, .mark-line path')]
      .filter(path => Math.max(path.getBBox().width, path.getBBox().height) > 0).length,
    texts: [...place.querySelectorAll('text')].filter(seen).map(text => [text.textContent, ...inside(text)]),
    axes: [...place.querySelectorAll('.role-axis-label')].map(axis =>
      [...axis.querySelectorAll('text')].filter(seen).map(text => [text.textContent, ...inside(text)])),
  };
})"""
CONTRASTS = """() => {
  const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => { context.clearRect(0, 0, 1, 1); context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data]; };
  const light = colour => { const [r, g, b] = rgb(colour).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = element => { for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor; if (rgb(colour)[3] > 200) return colour; } return 'white'; };
  const found = {};
  for (const what of ['h1', '.summary li', '.facts dt', 'td', '.reason', '.under', 'figcaption', '.notes',
                      '.role-axis-label text', '.role-axis-title text', '.legend li', 'select']) {
    const element = document.querySelector(what), style = getComputedStyle(element);
    const one = light(element.closest('svg') ? style.fill : style.color), other = light(behind(element));
    found[what] = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """One browser for the module."""
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The example with all charts."""
    return write_report(bench(rows=rows() + micro_batches()), tmp_path_factory.mktemp("report"), pictures=False)


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_the_page_is_whole_and_readable(report: Report, chrome: Browser, width: int, scheme: str) -> None:
    page, seen = opened(chrome, report.page, width, scheme)
    assert seen.errors == []
    assert seen.requests == [report.page.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    charts = page.evaluate(CHARTS)
    assert len(charts) == len(report.charts) == 13
    for chart in charts:
        check_chart(chart)
    for what, contrast in page.evaluate(CONTRASTS).items():
        assert contrast >= 4.5, what
    page.close()


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_a_rehearsed_ranks_memory_is_drawn_wide_and_narrow(
    tmp_path: Path, chrome: Browser, width: int, scheme: str
) -> None:
    file, _ = write_memory(FOUND, DEVICE, FACTS, tmp_path)
    page, seen = opened(chrome, file, width, scheme)
    assert seen.errors == []
    assert seen.requests == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    (chart,) = page.evaluate(CHARTS)
    check_chart(chart)
    assert {"peak 10 GiB", "forward 0", "backward 0"} <= {text for text, *_ in chart["texts"]}
    page.close()


def check_chart(chart: dict[str, Any]) -> None:
    """Drawn, labelled, inside its place, no text cut off at a side, no two labels of an axis on one another."""
    key, left, right = chart["key"], chart["box"][0] - 1, chart["box"][1] + 1
    assert chart["svg"], key
    assert chart["label"], key
    assert chart["svg"][1] - chart["svg"][0] > 250, key
    assert chart["svg"][3] - chart["svg"][2] > 60, key
    assert chart["marks"] > 0, key
    assert chart["svg"][0] >= left, key
    assert chart["svg"][1] <= right, key
    for text, start, end, *_ in chart["texts"]:
        assert start >= left, (key, text)
        assert end <= right, (key, text)
    for labels in chart["axes"]:
        for index, (text, start, end, top, bottom) in enumerate(labels):
            for other, start2, end2, top2, bottom2 in labels[index + 1 :]:
                apart = end <= start2 or end2 <= start or bottom <= top2 + 2 or bottom2 <= top + 2
                assert apart, (key, text, other)


def test_a_click_on_a_head_sorts_the_table(report: Report, chrome: Browser) -> None:
    page, _ = opened(chrome, report.page)

    def names() -> list[str]:
        found: list[str] = page.locator("tbody .name").all_inner_texts()
        return found

    head = page.get_by_role("button", name="memory", exact=True)
    head.click()
    # 3.5 and 3.8 GiB are least; failed rows have no memory and stay last.
    assert names()[:2] == ["fsdp4 mbs1", "fsdp4"]
    assert names()[-3:] == ["tp4 mbs32", "tp8", "cp4:ring"]
    head.click()
    assert set(names()[:2]) == {"ddp4", "ddp2"}
    assert names()[-3:] == ["tp4 mbs32", "tp8", "cp4:ring"]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("memory")
    page.get_by_role("button", name="layout").click()
    assert names()[0] == "cp4:ring"
    page.close()


def test_the_schedule_of_another_layout_is_shown_on_request(report: Report, chrome: Browser) -> None:
    page, seen = opened(chrome, report.page)
    bars = page.locator("#chart-schedule .mark-rect.role-mark path")
    # GPipe by hand: 8 micro-batches, forward and backward, on 2 and on 4 ranks.
    assert bars.count() == 32
    page.locator("#chart-schedule select").select_option(label="pp4:gpipe")
    page.wait_for_function("document.querySelectorAll('#chart-schedule .mark-rect.role-mark path').length === 64")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.locator("#chart-loss select").select_option(label=LONG)
    page.wait_for_function("document.querySelectorAll('#chart-loss .mark-symbol.role-mark path').length === 20")
    assert seen.errors == []
    page.close()


def test_an_attack_in_every_text_is_shown_and_not_run(chrome: Browser, tmp_path: Path) -> None:
    report = write_report(evil_bench(), tmp_path, pictures=False)
    page, seen = opened(chrome, report.page, 400)
    assert seen.errors == []
    assert seen.dialogs == []
    assert seen.requests == [report.page.as_uri()]
    assert page.locator("img").count() == 0
    assert int(page.evaluate("document.documentElement.dataset.drawn")) == len(report.charts)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()


def test_fifty_layouts_are_readable_on_a_narrow_page(chrome: Browser, tmp_path: Path) -> None:
    report = write_report(large(50, 100), tmp_path, pictures=False)
    page, seen = opened(chrome, report.page, 400, "dark")
    assert seen.errors == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    for chart in page.evaluate(CHARTS):
        check_chart(chart)
    page.close()


def test_the_printed_page_is_black_on_white(report: Report, chrome: Browser) -> None:
    page, _ = opened(chrome, report.page, 1280, "dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.role-axis-label text')).fill") == "rgb(0, 0, 0)"
    page.close()
