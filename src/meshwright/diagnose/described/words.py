"""The words of each kind of fault, from `words.toml`, and which of them a text has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any
from zlib import crc32


def marks(text: str) -> set[str]:
    """Names of the patterns that a text has."""
    return {name for name, pattern in patterns().items() if pattern.search(text)}


@cache
def patterns() -> Mapping[str, re.Pattern[str]]:
    """Every pattern by its name, which stays the same as long as its text does."""
    read = _table("words.toml")
    terms = read["terms"]
    texts = [
        (pattern, pattern) if isinstance(pattern, str) else ("&".join(pattern), _both(*pattern))
        for category, table in read.items()
        if category != "terms"
        for listed in table.values()
        for pattern in listed
    ]
    return {short_name(name): re.compile(_whole(text, terms), re.IGNORECASE) for name, text in texts}


def short_name(text: str) -> str:
    """Eight digits that stand for a text: there are many, and only whether two are the same matters."""
    return f"{crc32(text.encode()):08x}"


@cache
def complaint() -> re.Pattern[str]:
    """What a text must have that complains about something."""
    terms = _table("words.toml")["terms"]
    return re.compile(_whole(terms["complaint"], terms), re.IGNORECASE)


def kinds() -> Mapping[str, Mapping[str, Any]]:
    """Of each category: `what` it is, and what to `change`."""
    return _table("kinds.toml")


@cache
def _table(name: str) -> Mapping[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _whole(pattern: str, terms: Mapping[str, str]) -> str:
    """The pattern with its {terms} written out."""
    for name, term in terms.items():
        if name != "complaint":
            pattern = pattern.replace(f"{{{name}}}", term)
    return pattern


def _both(a: str, b: str) -> str:
    """Found where both are, in any order and on any line."""
    return rf"\A(?=[\s\S]*(?:{a}))(?=[\s\S]*(?:{b}))"
