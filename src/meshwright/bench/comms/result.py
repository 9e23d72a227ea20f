"""What `comms` found: one fit a tier, and where it was measured. Bytes, seconds, bytes/s; no torch is imported."""

from __future__ import annotations

from dataclasses import dataclass


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
