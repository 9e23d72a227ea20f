"""Tables: what is in a cell is what is seen."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from meshwright.cli.bars import bar
from meshwright.cli.frame import main
from meshwright.cli.tables import table


def drawn(width: int, *rows: tuple[str, ...]) -> str:
    out = StringIO()
    Console(file=out, width=width).print(table(("name", ">size", "note"), rows))
    return out.getvalue()


def test_brackets_in_a_cell_are_text_and_no_markup() -> None:
    assert "[bold]x[/]" in drawn(80, ("[bold]x[/]", "1", ""))


def test_a_narrow_screen_folds_cells_and_cuts_nothing() -> None:
    page = drawn(30, ("llama-2-7b", "6738415616", "a long remark about it"))
    assert "…" not in page
    assert "llama-2-7b" in page
    for word in ("long", "remark", "about"):
        assert word in page


def test_numbers_are_flush_right() -> None:
    page = drawn(80, ("a", "1", ""), ("b", "1000", ""))
    one, thousand = page.splitlines()[2:4]
    assert one.index("1") + 1 == thousand.index("1000") + 4


LAYOUT = "zero1:16 tp8 pp8:interleaved1f1b:2 mbs2 ac:selective"


def plans(width: int) -> str:
    rows = [(LAYOUT, "1,234.5 s", bar(0.5), "46.7 %", "4,294,967,296")]
    out = StringIO()
    Console(file=out, width=width).print(
        table(("layout", ">step", "", ">MFU", ">tokens"), rows, drop=("tokens", "MFU"))
    )
    return out.getvalue()


def test_a_wide_screen_shows_every_column() -> None:
    page = plans(140)
    assert all(cell in page for cell in (LAYOUT, "1,234.5 s", "█", "46.7 %", "4,294,967,296"))


@pytest.mark.parametrize("width", range(60, 102, 7))
def test_bars_are_the_first_to_go(width: int) -> None:
    page = plans(width)
    assert "█" not in page
    assert all(number in page for number in ("1,234.5 s", "46.7 %", "4,294,967,296"))


@pytest.mark.parametrize("width", range(35, 110, 5))
def test_layouts_wrap_at_spaces_and_numbers_never(width: int) -> None:
    page = plans(width)
    assert all(token in page for token in LAYOUT.split())
    assert "1,234.5 s" in page
    assert max(map(len, page.splitlines())) <= width


def test_columns_are_dropped_in_the_order_that_is_asked() -> None:
    assert "4,294,967,296" not in plans(48)
    assert "46.7 %" in plans(48)
    assert "46.7 %" not in plans(38)


@pytest.mark.parametrize("width", ["60", "80"])
@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("models", ("6.74 B", "llama-4-maverick-17b-128e")),
        ("clusters", ("A100-PCIe-80GB", "3,350")),
        ("history --limit 40", ("ZeRO-",)),
        ("estimate gpt2 --cluster 2xH100 --layout fsdp2", ("all-gather", "reduce-scatter", "activations")),
        ("backtest --source simumax", ("simumax-0041", "MAPE")),
    ],
)
def test_every_verb_fits_a_narrow_terminal(
    words: str, whole: tuple[str, ...], width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert main(words.split()) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= int(width)
    assert all(text in page for text in whole)


def test_counts_of_models_are_short_and_exact_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "llama-2-7b"]) == 0
    assert "6.74 B" in capsys.readouterr().out
    assert main(["models", "llama-2-7b", "--exact"]) == 0
    assert "6,738,415,616" in capsys.readouterr().out
