"""`meshwright models`: the preset models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption, complete_model, nearest_names, nothing_matches
from meshwright.cli.screen import console, print_json
from meshwright.cli.tables import table
from meshwright.spec.errors import ModelError

if TYPE_CHECKING:
    from meshwright.spec.model import Model

EXAMPLES = (
    "meshwright models",
    "meshwright models llama --exact",
    "meshwright models --json | jq '.models[].name'",
)
COLUMNS = ("model", ">parameters", ">active", ">layers", ">hidden", ">heads/kv", ">vocab", ">context", ">experts")
NARROW = ("vocab", "heads/kv", "hidden", "context", "experts", "active")
"""Columns that narrow screens do without, the first one first."""


def answer(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Only names and families with this.", autocompletion=complete_model)
    ] = "",
    exact: Annotated[bool, typer.Option("--exact", help="Every digit of the counts, as in the JSON.")] = False,
    as_json: JsonOption = False,
) -> int:
    """List the preset models with their parameter counts, which are exact in the JSON.

    Any Hugging Face config.json works where a preset's name does. Exit code 2: no name or family has TEXT.
    """
    from meshwright.spec.model_config import list_models
    from meshwright.spec.units import count

    known = list_models()
    chosen = [model for model in known if text.lower() in model.name.lower() or text.lower() in model.family.lower()]
    if not chosen:
        names = {name for model in known for name in (model.name, model.family)}
        raise ModelError(nothing_matches(text, "preset's name or family", "models"), nearest_names(text, names))
    rows = [_facts(model) for model in chosen]
    if as_json:
        print_json({"models": rows})
    else:
        console().print(table(COLUMNS, [_cells(row, _digits if exact else count) for row in rows], drop=NARROW))
    return 0


def _facts(model: Model) -> dict[str, Any]:
    from meshwright.cost.parameters import parameters

    counts = parameters(model)
    return {
        "name": model.name,
        "family": model.family,
        "parameters": counts.total,
        "active_parameters": counts.active,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn_hidden": model.ffn_hidden,
        "vocab": model.vocab,
        "max_positions": model.max_positions,
        "experts": model.experts.count if model.experts else 0,
    }


def _digits(number: float) -> str:
    return f"{number:,}"


def _cells(row: dict[str, Any], written: Callable[[float], str]) -> list[str]:
    """One model as text, counts as `written`; what only mixtures of experts have stays empty for the others."""
    mixture = row["experts"] > 0
    return [
        row["name"],
        written(row["parameters"]),
        written(row["active_parameters"]) if mixture else "",
        f"{row['layers']}",
        f"{row['hidden']}",
        f"{row['heads']}/{row['kv_heads']}",
        f"{row['vocab']}",
        f"{row['max_positions']}",
        f"{row['experts']}" if mixture else "",
    ]
