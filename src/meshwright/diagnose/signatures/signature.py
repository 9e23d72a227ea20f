"""Signature: a text that programs print, and what it says about a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from meshwright.diagnose.finding import ERROR, LIKELY, Finding
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line

MOST_LINES = 64
"""Lines that are kept for each signature."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One text."""

    category: str
    key: str
    """In lower case; a line in which it does not occur is not looked at further. It makes reading fast. Of several,
    with a bar between them, one must."""
    pattern: str
    """A regular expression, upper and lower case alike; its named groups may be used in `cause` and `change`."""
    cause: str
    change: tuple[str, ...]
    source: str
    """Who prints it, and where that is said: a file of the program, its documentation, or an issue."""
    severity: str = ERROR
    confidence: str = LIKELY
    consequence: bool = False
    weight: int = 0
    confirm: str = ""


@dataclass
class Matches:
    """Lines in which signatures were found."""

    of: dict[Signature, list[Line]] = field(default_factory=dict)


class Table:
    """Signatures, ready to be looked for."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._by_key: dict[str, list[tuple[Late, Signature]]] = {}
        for one in signatures:
            pattern = Late(one.pattern, re.IGNORECASE)
            for key in one.key.split("|"):
                self._by_key.setdefault(key, []).append((pattern, one))
        self._keys = tuple(self._by_key)

    def look(self, line: Line, found: Matches) -> None:
        """Adds what the line says to `found`."""
        lower = line.text.lower()
        asked = {one: pattern for key in self._keys if key in lower for pattern, one in self._by_key[key]}
        for one, pattern in asked.items():
            if pattern.search(line.text):
                lines = found.of.setdefault(one, [])
                if len(lines) < MOST_LINES:
                    lines.append(line)


def findings(found: Matches) -> Iterable[Finding]:
    """One Finding for each signature and each set of values in its text."""
    for one, lines in found.of.items():
        pattern = re.compile(one.pattern, re.IGNORECASE)
        by_values: dict[tuple[tuple[str, str], ...], list[Line]] = {}
        for line in lines:
            match = pattern.search(line.text)
            values = {name: value or "?" for name, value in match.groupdict().items()} if match else {}
            by_values.setdefault(tuple(values.items()), []).append(line)
        for pairs, same in by_values.items():
            yield finding(one, same, dict(pairs))


def finding(one: Signature, lines: Sequence[Line], values: dict[str, str]) -> Finding:
    """The signature's Finding with these lines as evidence."""
    return Finding(
        one.category, one.severity, one.confidence,
        tuple(sorted({line.rank for line in lines if line.rank is not None})),
        one.cause.format(**values),
        tuple(evidence(line) for line in lines),
        one.confirm.format(**values),
        tuple(change.format(**values) for change in one.change),
        earliest(lines),
        one.consequence, one.weight,
    )  # fmt: skip
