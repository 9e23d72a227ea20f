"""Facts: what the readers found, by kind. A topic asks for its own kind and need not know the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Input:
    """One file, or one member of an archive."""

    path: str
    kind: str
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    """All whose lines are in it."""
    problem: str = ""
    """Why it was not read; "" where it was."""


@dataclass
class Facts:
    """All that was found. `of(Kind)` is the one object of a class that holds facts; it is made at the first call."""

    inputs: list[Input] = field(default_factory=list)
    last_lines: dict[int, tuple[str, int, str]] = field(default_factory=dict)
    """Path, number and text of the last line that each rank has logged."""
    settings: list[str] = field(default_factory=list)
    """Texts of small configurations: the circumstances of what a person describes."""
    explained: set[str] = field(default_factory=set)
    """Paths that are evidence of a cause, for the rules of a last resort."""
    settled: set[str] = field(default_factory=set)
    """Those whose cause is at least likely."""
    cited: set[tuple[str, int | None]] = field(default_factory=set)
    """Paths and lines that are evidence of anything."""
    _kinds: dict[type, object] = field(default_factory=dict)

    def of(self, kind: type[Kind]) -> Kind:
        """The facts of one kind; `kind()` must make empty ones."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = kind()
        assert isinstance(found, kind)
        return found
