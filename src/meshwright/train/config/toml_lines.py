"""Where in a TOML file a key stands: the standard library reads TOML but tells no lines."""

from __future__ import annotations

import re

_NAME = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNED = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""")
_INLINE = re.compile(rf"[{{,]\s*({_NAME})\s*=")


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """The line, from 1, where the table or key `path` is first written in a TOML `text`; None: it is not there.

    Text inside multi-line strings is passed over.
    """
    table: tuple[str, ...] = ()
    quote = ""
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            quote = "" if quote in line else quote
            continue
        quote = _opened(line)
        header = _HEADER.match(line)
        assigned = _ASSIGNED.match(line)
        if header and not assigned:
            table = _parts(header[1])
            if _within(table, path):
                return number
        elif assigned:
            here = table + _parts(assigned[1])
            if _within(here, path) or path in {here + _parts(key) for key in _INLINE.findall(line)}:
                return number
    return None


def _within(here: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether what stands at `here` is `path` or lies inside it."""
    return here[: len(path)] == path


def _parts(written: str) -> tuple[str, ...]:
    return tuple(next((part for part in found if part), "") for found in _PART.findall(written))


def _opened(line: str) -> str:
    """The quotes of a multi-line string that starts on this line and does not end on it."""
    for quote in ('"""', "'''"):
        if line.count(quote) % 2 == 1:
            return quote
    return ""
