"""The options of `meshwright train`: one for each key of the configuration, `--train.steps` for `steps` in [train]."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from meshwright.cli.options import complete_cluster, complete_model, one_of
from meshwright.train.config.keys import Key, keys
from meshwright.train.config.models import small_names

PANELS = {
    "": "Run",
    "train": "Steps and numbers",
    "data": "Data",
    "optimizer": "Optimizer",
    "schedule": "Learning-rate schedule",
    "checkpoint": "Checkpoints",
    "parallel": "Tuning of the parallel modes",
    "metrics": "Metrics",
    "launch": "Processes",
}
"""Title of each section on the help page, in its order."""
_METAVARS = {int: "N", float: "X", str: "TEXT"}
_KNOWN_METAVARS = {"model": "MODEL", "layout": "LAYOUT", "cluster": "CLUSTER"}


def takes_config(answer: Callable[..., int]) -> Callable[..., int]:
    """`answer(flags, …)` as a function that takes each key of the configuration by name, which Typer can read.

    `flags` maps the dotted paths of those that are given to their texts.
    """
    by_name = inspect.Parameter.KEYWORD_ONLY
    names = {path.replace(".", "__"): path for path in keys()}
    shared = [
        inspect.Parameter(name, by_name, default=None, annotation=_annotation(keys()[path]))
        for name, path in names.items()
    ]
    _, *own = inspect.signature(answer, eval_str=True).parameters.values()

    @functools.wraps(answer)
    def spread(**values: Any) -> int:
        given = {path: values.pop(name) for name, path in names.items()}
        flags = {path: _text(value) for path, value in given.items() if value is not None}
        return answer(flags, **values)

    parameters = [*(parameter.replace(kind=by_name) for parameter in own), *shared]
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread


def _text(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _annotation(key: Key) -> Any:
    """What Typer reads: a switch for true or false, else a text that the configuration checks itself."""
    flag = f"--{key.path}"
    shared: dict[str, Any] = {"help": _help(key), "rich_help_panel": PANELS[key.section], "show_default": False}
    if key.kind is bool:
        off = _off(key.path)
        names = [f"{name}/{no}" for name, no in zip(_spellings(flag), _spellings(off), strict=True)]
        return Annotated[bool | None, typer.Option(*names, **shared)]
    completion = _completion(key)
    return Annotated[
        str | None, typer.Option(*_spellings(flag), metavar=_metavar(key), autocompletion=completion, **shared)
    ]


def _spellings(flag: str) -> tuple[str, ...]:
    """A flag as the configuration file spells its key, and with hyphens, as other verbs spell theirs."""
    return (flag, flag.replace("_", "-")) if "_" in flag else (flag,)


def _off(path: str) -> str:
    """The switch that says false: `--metrics.no-wandb`."""
    section, dot, name = path.rpartition(".")
    return f"--{section}{dot}no-{name}"


def _metavar(key: Key) -> str:
    if key.path in _KNOWN_METAVARS:
        return _KNOWN_METAVARS[key.path]
    one = "NAME" if key.names else _METAVARS.get(key.kind, "TEXT")
    return one if key.length is None else f"{one},…"


def _help(key: Key) -> str:
    names = f" One of {', '.join(key.names)}." if key.names else ""
    default = "" if key.default in (None, "", False) else f" Default: {_shown(key.default)}."
    # Typer reads brackets as markup.
    return (key.doc + names + default).replace("[", r"\[") or key.name


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _completion(key: Key) -> Callable[[str], list[str]] | None:
    if key.path == "model":
        return _complete_models
    if key.path == "cluster":
        return complete_cluster
    return one_of(key.names) if key.names else None


def _complete_models(incomplete: str) -> list[str]:
    return [*(name for name in small_names() if name.startswith(incomplete)), *complete_model(incomplete)]
