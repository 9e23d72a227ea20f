"""`meshwright diagnose`: what is wrong with a job, from what it left behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption
from meshwright.cli.screen import console, plain, print_json

if TYPE_CHECKING:
    from meshwright.diagnose.diagnosis import Diagnosis

EXAMPLES = (
    "meshwright diagnose dumps/",
    "meshwright diagnose nccl_trace_rank_0 nccl_trace_rank_1",
    "meshwright diagnose dumps/ --json",
)


def answer(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", help="Files or folders that the job left.", show_default=False),
    ],
    as_json: JsonOption = False,
) -> int:
    """Find who hung a job, from the Flight Recorder's dumps of its ranks.

    Files are recognised by content; pickles are read without running anything in them. So far dumps of the Flight
    Recorder are read (NCCL and gloo, pickle and JSON). Exit code 0: nothing wrong found; 1: findings; 2: nothing to
    read.
    """
    from meshwright.diagnose.diagnosis import diagnose
    from meshwright.diagnose.finding import INFO

    found = diagnose(paths)
    if as_json:
        print_json(_document(found))
    else:
        _show(found)
    return int(any(one.severity != INFO for one in found.findings))


def _document(found: Diagnosis) -> dict[str, Any]:
    hidden = ("when", "consequence", "weight")  # they are what the order of the list says
    return {
        "inputs": [plain(one) for one in found.inputs],
        "findings": [{k: v for k, v in plain(one).items() if k not in hidden} for one in found.findings],
        "checked": list(found.checked),
        "missing": list(found.missing),
    }


def _show(found: Diagnosis) -> None:
    from meshwright.diagnose.told import lines_of

    screen = console()
    for number, one in enumerate(found.findings, 1):
        first, *rest = lines_of(one)
        screen.print(f"{number}. {first}", style="bold", markup=False)
        for line in rest:
            screen.print(line, markup=False)
        screen.print()
    if not found.findings:
        screen.print("Nothing wrong found.", style="bold")
    for line in found.checked:
        screen.print(f"Checked: {line}", markup=False)
    for line in found.missing:
        screen.print(f"Missing: {line}", markup=False)
    for file in found.inputs:
        if file.problem:
            screen.print(f"Not read: {file.path}: {file.problem}", markup=False)
