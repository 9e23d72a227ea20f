"""`meshwright history`: the published runs of the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.options import JsonOption, complete_device, nearest_names, nothing_matches
from meshwright.cli.screen import console, print_json
from meshwright.cli.tables import table
from meshwright.spec.errors import RequestError

if TYPE_CHECKING:
    from meshwright.plan.published import PublishedRun

EXAMPLES = ("meshwright history llama --device H100", "meshwright history --limit 5", "meshwright history bloom --json")
COLUMNS = ("run", "model", "devices", "precision", "layout", ">seq × batch", ">step s", ">tokens/s/device", ">peak GiB")
NARROW = ("seq × batch", "peak GiB", "precision", "run", "step s")
"""Columns that narrow screens do without, the first one first."""


def answer(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Only models whose name has this.")] = "",
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Only devices whose name has this.", autocompletion=complete_device)
    ] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most this many.")] = 20,
    as_json: JsonOption = False,
) -> int:
    """List measured training runs that others have published: by model, then device, the fastest first.

    A `?` marks a time that its source makes doubtful. Exit code 2: no run matches.
    """
    from meshwright.plan.history import list_runs

    found = sorted(list_runs(model, device), key=_order)
    if not found:
        raise _no_run(model, device)
    shown = found[:limit]
    if as_json:
        from meshwright.cli.documents import run_document

        print_json({"found": len(found), "runs": [run_document(run) for run in shown]})
    else:
        screen = console()
        screen.print(table(COLUMNS, [_cells(run) for run in shown], drop=NARROW))
        screen.print(f"{len(shown)} of {len(found)} runs; --limit shows more, --json also their sources and notes.")
    return 0


def _order(run: PublishedRun) -> tuple[str, str, float]:
    return run.model_name.lower(), run.device, -(run.tokens_per_second_per_device or 0.0)


def _no_run(model: str, device: str) -> RequestError:
    """Which of the two words no run has; both may have runs, but none together."""
    from meshwright.plan.history import list_runs

    of_model = list_runs(model)
    if not of_model:
        names = {run.model_name for run in list_runs()}
        return RequestError(nothing_matches(model, "published run's model", "history"), nearest_names(model, names))
    devices = {run.device for run in of_model}
    if model and list_runs("", device):
        return RequestError(f"No published run of {model[:40]!r} is on {device[:40]!r}.", sorted(devices))
    return RequestError(nothing_matches(device, "published run's device", "history"), nearest_names(device, devices))


def _cells(run: PublishedRun) -> list[str]:
    """One run as text; a timing that cannot be relied on is marked."""
    seconds, tokens = run.step_seconds, run.tokens_per_second_per_device
    doubt = "" if run.time_ok else "?"
    return [
        run.id,
        run.model_name,
        f"{run.devices}×{run.device}",
        run.text("precision"),
        run.layout,
        f"{run.text('seq_len')} × {run.text('global_batch') or '?'}",
        f"{seconds:.3g}{doubt}" if seconds else "",
        f"{tokens:,.0f}{doubt}" if tokens else "",
        "out of memory" if run.out_of_memory else run.text("peak_mem_gib"),
    ]
