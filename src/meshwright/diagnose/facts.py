"""Facts: what the readers found, by kind. A topic asks for its own kind and need not know the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from meshwright.diagnose.finding import ERROR, INFO, POSSIBLE, Finding

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


def cited(findings: Iterable[Finding]) -> set[tuple[str, int | None]]:
    """Paths and lines that are evidence of anything."""
    return {(evidence.path, evidence.line) for one in findings for evidence in one.evidence}


@dataclass
class Facts:
    """All that was found. `of(Kind)` is the one object of a class that holds facts; it is made at the first call."""

    inputs: list[Input] = field(default_factory=list)
    last_lines: dict[int, tuple[str, int, str]] = field(default_factory=dict)
    """Path, number and text of the last line that each rank has logged."""
    settings: list[str] = field(default_factory=list)
    """Texts of small configurations: the circumstances of what a person describes."""
    found: Sequence[Finding] = ()
    """What the rules before those of a last resort have found."""
    _kinds: dict[type, object] = field(default_factory=dict)

    @property
    def causes(self) -> list[Finding]:
        """What is wrong, and follows from nothing else."""
        return [one for one in self.found if one.severity != INFO and not one.consequence]

    def told_of(self, path: str) -> list[Finding]:
        """The causes that this file is evidence of."""
        return [one for one in self.causes if any(evidence.path == path for evidence in one.evidence)]

    @property
    def settled(self) -> bool:
        """Whether a cause of an error is known, and at least likely."""
        return any(one.severity == ERROR and one.confidence != POSSIBLE for one in self.causes)

    def of(self, kind: type[Kind]) -> Kind:
        """The facts of one kind; `kind()` must make empty ones."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = kind()
        assert isinstance(found, kind)
        return found
