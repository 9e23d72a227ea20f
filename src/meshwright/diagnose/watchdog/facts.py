"""Facts of a hang: the watchdog's timeouts and states, checks of collectives, and what ranks did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from meshwright.diagnose.logs.line import Line

Kept = TypeVar("Kept")
MOST = 4096
"""Lines of a kind that are kept: a large job prints the same for every rank."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group, as the watchdog's prefix names it."""

    key: str
    title: str
    sure: bool
    """Whether the key is one and the same group on all ranks: a GUID, or the default group."""


@dataclass(frozen=True, slots=True)
class Place:
    """Who prints. `[rankN]` is the rank in the job, `[Rank r]` the one in the group: they are never mixed."""

    rank: int | None
    """In the whole job."""
    group_rank: int | None
    group: Group | None

    @property
    def who(self) -> int | None:
        """The rank in the job; where only the group's is told, that one (torch before 2.3 tells no other)."""
        return self.group_rank if self.rank is None else self.rank


@dataclass(frozen=True, slots=True)
class Timeout:
    """A collective that a rank's watchdog gave up."""

    line: Line
    place: Place
    sequence: int | None
    operation: str
    """As NCCL's back end calls it: ALLREDUCE, _ALLGATHER_BASE, …; "": not said."""
    elements_in: int | None
    elements_out: int | None
    limit_s: float
    ran_s: float


@dataclass(frozen=True, slots=True)
class State:
    """How far a rank is in a group."""

    line: Line
    place: Place
    at: int | None
    """The collective that timed out, where the line tells one."""
    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True)
class Stuck:
    """A watchdog that made no progress itself."""

    line: Line
    place: Place
    seconds: float


@dataclass(frozen=True, slots=True)
class Print:
    """What a rank is about to run, as TORCH_DISTRIBUTED_DEBUG=DETAIL compares it."""

    rank: int
    sequence: int | None
    operation: str
    shape: tuple[int, ...] | None
    dtype: str


@dataclass(frozen=True, slots=True)
class Differing:
    """Two ranks' fingerprints that differ."""

    line: Line
    prints: tuple[Print, Print]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A monitored barrier that failed."""

    line: Line
    reporter: int | None
    """The rank that waited, where the line tells it."""
    absent: tuple[int, ...]
    limit_s: float | None


@dataclass(frozen=True, slots=True)
class Doing:
    """What a rank was at: a progress bar, or a text that names a phase."""

    line: Line
    kind: str
    """save, end, evaluation, data."""
    elapsed_s: float | None = None
    """Of a progress bar."""


@dataclass
class Watchdog:
    """All of it."""

    timeouts: list[Timeout] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    differing: list[Differing] = field(default_factory=list)
    barriers: list[Barrier] = field(default_factory=list)
    doing: dict[tuple[str, int | None], list[Doing]] = field(default_factory=dict)
    """The last few of each file and rank."""
    closed: list[Line] = field(default_factory=list)
    """Connections that somebody else's end closed."""
    world: int = 0
    """Ranks of the job, as far as a line says so; 0: none does."""


def add(kept: list[Kept], one: Kept) -> None:
    """Adds up to `MOST`."""
    if len(kept) < MOST:
        kept.append(one)
