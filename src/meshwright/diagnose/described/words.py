"""The words of each kind of fault, from `words.toml`, and how much of them a text has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

OWN = 3
"""Weight of a term that points at a kind by itself."""
Weighted = tuple[tuple[int, re.Pattern[str]], ...]


def weights(text: str, around: str = "") -> dict[str, int]:
    """How much each category's words weigh in a text and what is known around it.

    Categories without a term of their own in the text are left out: a configuration complains of nothing.
    """
    found = {}
    whole = f"{text}\n{around}"
    for category, patterns in words().items():
        if any(weight >= OWN and pattern.search(text) for weight, pattern in patterns):
            found[category] = sum(weight for weight, pattern in patterns if pattern.search(whole))
    return found


@cache
def words() -> Mapping[str, Weighted]:
    """Weights and patterns by category."""
    read = _read()
    return {category: tuple(_patterns(table, read["terms"])) for category, table in read.items() if category != "terms"}


@cache
def complaint() -> re.Pattern[str]:
    """What a text must have that complains about something."""
    terms = _read()["terms"]
    return re.compile(_whole(terms["complaint"], terms), re.IGNORECASE)


@cache
def kinds() -> Mapping[str, Mapping[str, Any]]:
    """Of each category: `what` it is, and what to `change`."""
    return _table("kinds.toml")


@cache
def _read() -> Mapping[str, Any]:
    return _table("words.toml")


def _table(name: str) -> Mapping[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _patterns(table: Mapping[str, Any], terms: Mapping[str, str]) -> list[tuple[int, re.Pattern[str]]]:
    found = []
    for key, patterns in table.items():
        for pattern in patterns:
            text = _both(*pattern) if key.startswith("both") else pattern
            found.append((int(key[-1]), re.compile(_whole(text, terms), re.IGNORECASE)))
    return found


def _whole(pattern: str, terms: Mapping[str, str]) -> str:
    """The pattern with its {terms} written out."""
    for name, term in terms.items():
        if name != "complaint":
            pattern = pattern.replace(f"{{{name}}}", term)
    return pattern


def _both(a: str, b: str) -> str:
    """Found where both are, in any order and on any line."""
    return rf"\A(?=[\s\S]*(?:{a}))(?=[\s\S]*(?:{b}))"
