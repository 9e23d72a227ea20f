"""What logs tell of memory: failed allocations, retries, killed processes, sizes over time, the job."""

from __future__ import annotations

from collections import deque
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


@dataclass(frozen=True, slots=True)
class Told:
    """Sizes in a person's words."""

    line: Line
    category: str
    sizes: tuple[float, ...]
    """Bytes."""


@dataclass
class Job:
    """What is known of the model and of the batch, as far as texts say so."""

    config: dict[str, Any] | None = None
    """A Hugging Face config.json."""
    config_path: str = ""
    arguments: dict[str, int] = field(default_factory=dict)
    """By `ARGUMENTS`' names."""
    sharding: str = ""
    """What data-parallel ranks share: fsdp, zero1, zero2, zero3; "": nothing is known of it."""
    adapters: bool = False
    """LoRA or the like: few parameters have gradients and optimizer states."""


@dataclass
class Context:
    """The last lines of one file, by rank."""

    lines: dict[int | None, deque[str]] = field(default_factory=dict)
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
    loading: list[Line] = field(default_factory=list)
    resumed: list[Line] = field(default_factory=list)
    growing: list[Line] = field(default_factory=list)
    """Where a person says that memory grows."""
    first_step: Line | None = None
    host_sizes: dict[tuple[str, int | None], list[tuple[Line, float]]] = field(default_factory=dict)
    """Host memory in use, bytes, over time."""
    ranks: set[int] = field(default_factory=set)
    job: Job = field(default_factory=Job)
    contexts: dict[str, Context] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    listings: list[tuple[Line, Any]] = field(default_factory=list)
    """Segments of an allocator that somebody printed."""
