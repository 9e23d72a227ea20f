"""`meshwright report`: the page of a bench, or of several side by side, made anew from their results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption
from meshwright.cli.screen import print_error, print_json

if TYPE_CHECKING:
    from meshwright.bench.result import Bench
    from meshwright.report import Report

EXAMPLES = (
    "meshwright report bench/2026-01-02",
    "meshwright report monday tuesday --out comparison --open",
    "meshwright report bench/2026-01-02 --no-png --json",
)


FILE = "results.json"


def answer(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Folders of benches, or their results.json.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to write; else the bench's folder, or 'comparison' for several."),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    png: Annotated[
        bool, typer.Option("--png/--no-png", help="Write a PNG of every chart too; takes some seconds.")
    ] = True,
    as_json: JsonOption = False,
) -> int:
    """Write report.html of one bench, or one that compares several.

    The page holds everything it shows and loads nothing. Rows of several benches are compared only where model,
    sequence length, global batch and precision agree; the page says what differs.
    """
    from meshwright.bench.documents import read_results
    from meshwright.report import write_report

    found = [(name, read_results(run)) for name, run in zip(names(runs), runs, strict=True)]
    report = write_report(_one_or_several(found), out or _folder(runs), pictures=png)
    if as_json:
        print_json(_document(report))
    else:
        _show(report)
    if open_page:
        _open(report.page)
    return 0


def names(runs: list[Path]) -> list[str]:
    """A short name for each run: its folder's last part, with as many parts before it as make them differ."""
    folders = [(run.parent if run.name == FILE else run).absolute() for run in runs]
    for parts in range(1, max(len(folder.parts) for folder in folders)):
        found = ["/".join(folder.parts[-parts:]).removesuffix(f".{FILE}") for folder in folders]
        if len(set(found)) == len(found):
            return found
    last = [folder.name for folder in folders]
    return [f"{name} ({last[: i + 1].count(name)})" if last.count(name) > 1 else name for i, name in enumerate(last)]


def _one_or_several(found: list[tuple[str, Bench]]) -> Bench | list[tuple[str, Bench]]:
    return found[0][1] if len(found) == 1 else found


def _folder(runs: list[Path]) -> Path:
    if len(runs) > 1:
        return Path("comparison")
    return runs[0] if runs[0].is_dir() else runs[0].parent


def _document(report: Report) -> dict[str, Any]:
    """What `--json` prints: the files, the summary's sentences, and which charts there are."""
    from meshwright.report.words import summary

    study = report.study
    return {
        "page": str(report.page),
        "results": [str(path) for path in report.results],
        "pictures": [str(path) for path in report.pictures],
        "charts": list(report.charts),
        "left_out": report.left_out,
        "comparable": not study.differences,
        "differences": {difference.what: dict(difference.values) for difference in study.differences},
        "summary": list(summary(study)),
    }


def _show(report: Report) -> None:
    from meshwright.report.words import summary

    for sentence in summary(report.study):
        print(sentence)
    print(f"{report.page} ({len(report.charts)} charts, {len(report.pictures)} PNGs)")


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        print_error(f"No browser here; open {page.absolute()} in one.", label="note: ")
