"""`meshwright diagnose`: what is wrong with a job, from what it left behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption
from meshwright.cli.screen import console, plain, print_json, progress_line

if TYPE_CHECKING:
    from meshwright.diagnose.diagnosis import Diagnosis

EXAMPLES = (
    "meshwright diagnose logs/",
    "meshwright diagnose logs/ traces/ ds_config.json",
    "meshwright diagnose job-1234.tar.gz --json",
)
MOST_UNREAD = 12
"""Files that were not read, of which the terminal lists the first."""


def answer(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", help="Files, folders or archives that the job left.", show_default=False),
    ],
    as_json: JsonOption = False,
) -> int:
    """Find what is wrong with a job, from what it left behind: the cause, the evidence, what to change.

    Any PyTorch job's: logs of any number of ranks, Flight Recorder dumps, Kineto traces, memory snapshots, nccl-tests
    output, metric lines, py-spy and nvidia-smi output, launch commands and configurations, packed or not. Files are
    recognised by content; pickles are read without running anything in them. Exit code 0: nothing wrong found; 1:
    findings; 2: nothing can be read.
    """
    from meshwright.diagnose.diagnosis import diagnose
    from meshwright.diagnose.finding import INFO

    with progress_line("MiB read") as show:
        found = diagnose(paths, progress=lambda done, total: show(done >> 20, total >> 20))
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
    unread = [file for file in found.inputs if file.problem]
    for file in unread[:MOST_UNREAD]:
        screen.print(f"Not read: {file.path}: {file.problem}", markup=False)
    if len(unread) > MOST_UNREAD:
        screen.print(f"Not read: {len(unread) - MOST_UNREAD} more files (--json lists them)", markup=False)
