"""`meshwright history`: the published runs of the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.options import JsonOption, complete_device
from meshwright.cli.screen import console, print_json
from meshwright.cli.tables import table

if TYPE_CHECKING:
    from meshwright.plan.published import PublishedRun

EXAMPLES = ("meshwright history llama --device H100", "meshwright history --limit 5", "meshwright history bloom --json")
COLUMNS = ("run", "model", "devices", "layout", ">seq × batch", ">step s", ">tokens/s/device", ">peak GiB")


def answer(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Only models whose name has this.")] = "",
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Only devices whose name has this.", autocompletion=complete_device)
    ] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most this many, the fastest devices first.")] = 20,
    as_json: JsonOption = False,
) -> int:
    """List measured training runs that others have published, with their sources.

    Exit code 1: none matches.
    """
    from meshwright.plan.history import list_runs

    found = list_runs(model, device)
    shown = found[:limit]
    if as_json:
        from meshwright.cli.documents import run_document

        print_json({"found": len(found), "runs": [run_document(run) for run in shown]})
    else:
        screen = console()
        screen.print(table(COLUMNS, [_cells(run) for run in shown]))
        screen.print(f"{len(shown)} of {len(found)} runs; --limit shows more, --json also their sources and notes.")
    return 0 if found else 1


def _cells(run: PublishedRun) -> list[str]:
    """One run as text; a timing that cannot be relied on is marked."""
    seconds, tokens = run.step_seconds, run.tokens_per_second_per_device
    doubt = "" if run.time_ok else "?"
    return [
        run.id,
        run.model_name,
        f"{run.devices}×{run.device}",
        run.layout,
        f"{run.text('seq_len')} × {run.text('global_batch') or '?'}",
        f"{seconds:.3g}{doubt}" if seconds else "",
        f"{tokens:,.0f}{doubt}" if tokens else "",
        "out of memory" if run.out_of_memory else run.text("peak_mem_gib"),
    ]
