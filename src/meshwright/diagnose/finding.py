"""Finding: one diagnosis, as a person reads it and as JSON has it."""

from __future__ import annotations

from dataclasses import dataclass

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
ERROR, WARNING, INFO = "error", "warning", "info"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where it is seen."""

    path: str
    text: str
    line: int | None = None
    event: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a job."""

    category: str
    severity: str
    """error, warning, info."""
    confidence: str
    """certain, likely, possible: of `cause`, as far as the evidence carries."""
    ranks: tuple[int, ...]
    """The culprits."""
    cause: str
    """One sentence."""
    evidence: tuple[Evidence, ...] = ()
    confirm: str = ""
    """What would confirm it."""
    change: tuple[str, ...] = ()
    """What to change, in the order in which to try."""
    when: float | None = None
    """Seconds since the epoch of the earliest evidence, where it has a time."""
    consequence: bool = False
    """It follows from something else: a watchdog's timeout, a peer that closed its connection."""
    weight: int = 0
    """How much is known: of Findings that are equally sure, the more specific one comes first."""
