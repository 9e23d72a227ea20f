"""What logs tell of memory: failed allocations, retries, killed processes, sizes over time, the job."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.memory.oom import Oom
from meshwright.diagnose.memory.place import Place

MOST = 4096
"""Records of one kind that are kept: a job of thousands of ranks may print millions."""


@dataclass
class Failure:
    """One failed allocation on a device."""

    line: Line
    oom: Oom
    before: tuple[str, ...]
    """Lines of the same rank before it."""
    after: list[str] = field(default_factory=list)
    place: Place = field(default_factory=Place)
    frames: tuple[Line, ...] = ()
    """The innermost frame of the user's own code and the line that it shows."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A count of allocator retries, or one retry."""

    line: Line
    count: int | None
    """Cumulative over the run; None: the line is one retry."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A process of the host that was killed, or an allocation of the host that failed."""

    line: Line
    how: str
    """kernel, slurm, container, worker, exit, alloc."""
    rank: int | None = None
    said: str = ""
    host: str = ""
    local: bool = False
    """Whether `rank` is the one in its node, as nothing near says which of the job's it is."""


@dataclass(frozen=True, slots=True)
class Told:
    """Sizes in a person's words."""

    line: Line
    category: str
    sizes: tuple[float, ...]
    """Bytes."""


@dataclass
class Context:
    """The last lines of one file, by rank."""

    lines: dict[int | None, deque[Line]] = field(default_factory=dict)
    open: list[Failure] = field(default_factory=list)
    """Failures whose following lines are still to come."""


@dataclass
class MemoryFacts:
    """Of all logs."""

    failures: list[Failure] = field(default_factory=list)
    retries: list[Retry] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    other_exits: list[Line] = field(default_factory=list)
    """Exit codes other than of SIGKILL and SIGTERM, a scheduler's limit, a watchdog: what else can end a job."""
    hosts: dict[tuple[str, int], str] = field(default_factory=dict)
    """Of ranks that a launcher reports, by file and rank."""
    loading: list[Line] = field(default_factory=list)
    resumed: list[Line] = field(default_factory=list)
    growing: list[Line] = field(default_factory=list)
    """Where a person says that memory grows."""
    stepped: set[str] = field(default_factory=set)
    """Files in which a step was made."""
    host_sizes: dict[tuple[str, int | None], list[tuple[Line, float]]] = field(default_factory=dict)
    """Host memory in use, bytes, over time."""
    ranks: dict[str, set[int]] = field(default_factory=dict)
    """By file."""
    configs: dict[str, Any] = field(default_factory=dict)
    """Models' configurations, by file."""
    sharding: dict[str, str] = field(default_factory=dict)
    """What lines name of how data-parallel ranks share a model, by file: fsdp, zero1, zero2, zero3."""
    adapters: set[str] = field(default_factory=set)
    """Files in which LoRA or the like is named: few parameters have gradients and optimizer states."""
    contexts: dict[str, Context] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    listings: list[tuple[Line, Any]] = field(default_factory=list)
    """Segments of an allocator that somebody printed."""

    def related(self, path: str) -> set[str]:
        """Files of the same job as far as that is known: a file of one rank, and others of one rank in its folder."""
        if len(self.ranks.get(path, ())) != 1:
            return {path}
        folder = path.rpartition("/")[0]
        return {one for one, ranks in self.ranks.items() if len(ranks) == 1 and one.rpartition("/")[0] == folder}

    def ranks_of(self, paths: Iterable[str]) -> set[int]:
        """The ranks that lines of these files are of."""
        return {rank for path in paths for rank in self.ranks.get(path, ())}
