"""Options that several verbs share, with their completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated

import typer


def complete_model(incomplete: str) -> list[str]:
    """Names of preset models that start with what was typed."""
    from meshwright.catalog.model_files import model_names

    return [name for name in model_names() if name.startswith(incomplete.lower())]


def complete_device(incomplete: str) -> list[str]:
    """Names of catalogue devices that start with what was typed, in any case."""
    from meshwright.catalog.cluster_files import device_tables

    return [name for name in device_tables()["devices"] if name.lower().startswith(incomplete.lower())]


def complete_cluster(incomplete: str) -> list[str]:
    """Clusters of the number of devices that was typed, or of one usual node."""
    count, times, device = incomplete.lower().rpartition("x")
    if not count.replace("x", "").isdigit():
        count, times, device = "8", "x", incomplete
    return [f"{count}{times}{name}" for name in complete_device(device)]


def one_of(words: Sequence[str]) -> Callable[[str], list[str]]:
    """A completion that offers the words that start with what was typed."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def nothing_matches(text: str, what: str, verb: str) -> str:
    """What a verb that lists says where nothing has the text that was asked for."""
    return f"No {what} contains {text[:40]!r}; `meshwright {verb}` lists all."


def nearest_names(text: str, names: Iterable[str]) -> list[str]:
    """The few names that look most like `text`; empty where none does."""
    by_lower = {name.lower(): name for name in names}
    return [by_lower[name] for name in get_close_matches(text.lower()[:80], by_lower, n=5, cutoff=0.4)]


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
