"""`meshwright backtest`: how wrong the prices are, on published runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption, complete_device, one_of
from meshwright.cli.screen import console, print_json

if TYPE_CHECKING:
    from meshwright.plan.backtest import Backtest, Scores

EXAMPLES = (
    "meshwright backtest",
    "meshwright backtest --source vtrain --role validate",
    "meshwright backtest --runs my-runs.csv --rows-out prices.csv",
    "meshwright backtest --json | jq '.sources.vtrain.mape'",
)
ROLES = ("validate", "fit", "all")


def answer(
    runs: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="A table in the catalogue's columns; the catalogue itself if not given."),
    ] = None,
    source: Annotated[str, typer.Option(metavar="NAME", help="Only runs of this source.")] = "",
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Only devices whose name has this.", autocompletion=complete_device)
    ] = "",
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="validate (no constant was fitted to them), fit, or all.",
            autocompletion=one_of(ROLES),
        ),
    ] = "all",
    rows_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Write every row's predicted time, memory and verdict there."),
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="Score rows too of which it is not known what they recomputed.")
    ] = False,
    unpriced: Annotated[
        bool, typer.Option("--unpriced", help="List every row that has no price, not only the reasons.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Price published runs and show how wrong the prices are, by source and by device.

    Rows that cannot be priced are listed with the reason. Exit code 1: none can be.
    """
    from meshwright.plan import history
    from meshwright.plan.backtest import backtest, write_prices
    from meshwright.plan.scored import select_runs
    from meshwright.spec.errors import RequestError

    if role not in ROLES:
        raise RequestError(f"There is no role {role[:40]!r}.", ROLES)
    if rows_out is not None and runs is not None and rows_out.resolve() == runs.resolve():
        raise RequestError("--rows-out names the file of --runs, which it would replace.", ("another file",))
    table = history.runs() if runs is None else history.read_runs(runs)
    result = backtest(select_runs(table, source, device, "" if role == "all" else role), all_rows=all_rows)
    if rows_out is not None:
        write_prices(rows_out, result.priced)
    if as_json:
        print_json(document(result))
    else:
        _show(result, unpriced)
    return 0 if result.priced else 1


def document(result: Backtest) -> dict[str, Any]:
    """The JSON document: errors are shares of one, above zero where the price is too high."""
    return {
        "rows": result.rows,
        "priced": len(result.priced),
        "scored": len(result.scored),
        **_scores(result.scores),
        "groups": result.groups,
        "regret": result.regret,
        "by_role": {role: _scores(scores) for role, scores in result.by_role.items()},
        "headlines": result.headlines,
        "unpriced": [{"id": row.run.id, "reason": row.reason} for row in result.unpriced],
        "unscored": result.unscored,
    }


def _scores(scores: Scores) -> dict[str, Any]:
    return {
        "overall": scores.overall,
        "sources": scores.sources,
        "devices": scores.devices,
        "memory": scores.memory,
        "memory_devices": scores.memory_devices,
        "oom": scores.verdicts,
    }


def _show(result: Backtest, list_unpriced: bool) -> None:
    from meshwright.cli import scoreboard

    screen = console()
    for block in scoreboard.blocks(result, list_unpriced):
        screen.print(block)
