"""What `comms` found: one row a message size, one fit a tier. Bytes, seconds, bytes/s; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.bench.comms.operations import bus_factor


@dataclass(frozen=True, slots=True)
class Line:
    """The groups that one axis consists of: ranks that talk to each other, and how far apart they are."""

    axis: str
    ranks: int
    """Of one group."""
    groups: int
    """That are measured at once: all of the axis."""
    nodes: int
    """That one group spans."""
    tier: str
    """intra: on one node; inter: across nodes."""

    @property
    def ranks_per_node(self) -> float:
        """Of one group."""
        return self.ranks / self.nodes


@dataclass(frozen=True, slots=True)
class Row:
    """One operation at one size on one axis."""

    line: Line
    operation: str
    bytes: int
    """By nccl-tests' convention (see `operations`)."""
    iterations: int = 0
    seconds: float | None = None
    """Median over iterations, of the slowest group; an iteration's time is the mean over the group's ranks."""
    p99_seconds: float | None = None
    note: str = ""
    """Why there is no time."""

    @property
    def algorithm_bytes_per_s(self) -> float | None:
        """Size over time."""
        return None if not self.seconds else self.bytes / self.seconds

    @property
    def bus_bytes_per_s(self) -> float | None:
        """What a link carries (nccl-tests' busbw)."""
        rate = self.algorithm_bytes_per_s
        return None if rate is None else rate * bus_factor(self.operation, self.line.ranks)


@dataclass(frozen=True, slots=True)
class TierFit:
    """A tier's link as `cost.collectives` reads it, and how well that tells the measurements."""

    tier: str
    latency_s: float
    """Alpha: one hop."""
    bytes_per_s: float
    """Beta: inside a node per device, between nodes per node (all its NICs together); one direction."""
    overhead_s: float
    """Of a collective, beside its hops."""
    points: int
    median_error: float
    """Relative, over operations and sizes."""
    worst_error: float
    worst: str
    """Where it is."""
    operation_errors: tuple[tuple[str, float], ...] = ()
    """Median relative error of each operation."""
    bandwidth_seen: bool = True
    """False: all messages were too small to tell it, and `bytes_per_s` is the most that one of them reached."""
    scatter: float = 1.0
    """`Efficiency.scatter` that it was fitted with."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the rows were measured."""

    ranks: int
    nodes: int
    device: str
    """Name of the device, as driver or system has it."""
    catalogue_name: str
    """The catalogue's device that it is; "": none for sure. `cpu` stands for every CPU."""
    backend: str
    """nccl, gloo, or whose output was read."""
    source: str
    """One line: what was measured, with which software, when."""

    @property
    def ranks_per_node(self) -> int:
        """Ranks that share a node."""
        return max(self.ranks // self.nodes, 1)
