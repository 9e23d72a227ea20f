"""Tables: what is in a cell is what is seen."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

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
