"""What reaches the terminal: JSON documents, error lines, and Rich's console."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 140


def console() -> Console:
    """Rich's console on stdout: no colour off a terminal or under NO_COLOR, and then wide enough for every table."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            # Rich would exit with 1, which means that the answer is no.
            raise BrokenPipeError

    fixed = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Piped(width=WIDTH_WITHOUT_TERMINAL if fixed else None, highlight=False)


def print_json(document: Any) -> None:
    """One JSON document on stdout; keys keep their order, a number that is not finite becomes null."""
    print(json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """`value` as what JSON knows: dataclasses and mappings as objects, sequences as lists, numpy scalars as numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def progress_line(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that shows `done of total` on one line of a terminal's stderr; the line is gone afterwards."""
    live = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if live:
            print(
                f"\r{done:,} of {total:,} {what} ({done / max(total, 1):.0%})\x1b[K",
                end="",
                file=sys.stderr,
                flush=True,
            )

    try:
        yield show
    finally:
        if live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def print_error(message: str, label: str = "error: ") -> None:
    """One message on stderr, in one piece."""
    print(f"{label}{message}", file=sys.stderr)
