"""What a trace says about one rank, small enough to keep for every rank of a job: times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it needs numpy, which takes as long to start as all the rest
    from meshwright.diagnose.traces.activity import Busy, Phase


@dataclass(frozen=True, slots=True)
class Step:
    """One step of training. Of a GPU it lasts from its first kernel to that of the next step."""

    name: str
    """As the profiler numbers it; ranks of a job share the names."""
    start: float
    busy: Busy
    kernels: int
    loading: float
    """The program waited for its DataLoader."""
    loading_idle: float
    """… and the device, or the rank where it has none, did nothing else."""
    collecting: float
    """Python collected garbage."""
    host_idle: float
    """The device did nothing while the host was in an operator or a call of the runtime."""
    frees: int
    """cudaFree, cudaMalloc and theirs of HIP."""
    allocations: int
    allocating: float


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective, or one send or receive, as one rank had it."""

    step: int
    """The number of its step in `Rank.steps`; -1: it lies outside of them."""
    group: str
    """Name and members as far as the trace says so: the same text on all members."""
    description: str
    kind: str
    """all-reduce, all-gather, …, send, recv, send-recv (NCCL's kernel for any of them); "" not known."""
    bytes: float | None
    """Of the whole message as nccl-tests counts it: a member's input, or output where that is larger."""
    received: float | None
    """Bytes of its output."""
    size: int | None
    """Of the group."""
    start: float
    end: float
    exposed: float
    """Seconds of it in which the rank computes nothing."""

    @property
    def seconds(self) -> float:
        """How long, with waiting for the last one to come."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Work:
    """All executions of one kernel, or of one operator where there is no GPU."""

    count: int
    median: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Rank:
    """One trace."""

    path: str
    rank: int | None
    world: int | None
    moment: float
    """Seconds since the epoch of its first event, by the clock of its host; 0 or any offset where it is not said."""
    on_gpu: bool
    devices: int
    """That the process can see; 0: not said."""
    problem: str
    """What of the file is missing."""
    whole: Busy
    steps: tuple[Step, ...]
    collectives: tuple[Collective, ...]
    work: Mapping[str, Work]
    kernel_median: float
    launch_delay: float | None
    """Median seconds from a launch to the start of its kernel; None: not known."""
    phases: tuple[Phase, ...]
    all_to_all: bool
    """Ranges say that send-recv kernels are all-to-alls."""


@dataclass
class Traces:
    """All traces of a diagnosis."""

    ranks: list[Rank] = field(default_factory=list)


def shares(rank: Rank) -> tuple[float, float, float]:
    """Computing, communication that nothing hides and idle, as shares of the steps, or of the whole where none are."""
    parts = [step.busy for step in rank.steps] or [rank.whole]
    window = sum(one.window for one in parts)
    if window <= 0:
        return 0.0, 0.0, 0.0
    return (
        sum(one.compute for one in parts) / window,
        sum(one.exposed for one in parts) / window,
        max(0.0, sum(one.idle for one in parts) / window),
    )


def label(rank: Rank) -> str:
    """What a person calls it."""
    return f"rank {rank.rank}" if rank.rank is not None else rank.path.rpartition("/")[2]
