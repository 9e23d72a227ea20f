"""Collective: what collectives are called, what their bandwidth counts, and one of them timed on one group.

Sizes and bandwidths are nccl-tests' (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): the size of an all-gather or a
reduce-scatter is that of the whole tensor, of an all-to-all what one rank sends to all, itself among them. Algorithm
bandwidth is size / time; bus bandwidth multiplies it by a factor of the operation, so that it can be held against a
link's. For send/recv every rank sends to the next one of a ring and receives from the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
ALL_TO_ALL, BROADCAST, SEND = "all-to-all", "broadcast", "send/recv"
OPERATIONS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, SEND)

INTRA, INTER = "intra", "inter"
"""A group's tier: all its ranks on one node, or not."""


def bus_factor(operation: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth in a group of `ranks`. Raises ValueError for an unknown operation."""
    if operation == ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    if operation in (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL):
        return (ranks - 1) / ranks
    if operation in (BROADCAST, SEND):
        return 1.0
    raise ValueError(f"unknown operation {operation!r}")


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
    """By nccl-tests' convention (above)."""
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
