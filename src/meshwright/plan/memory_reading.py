"""What a published memory figure is a reading of: which rank's, and whether the allocator's or the device's."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.catalog.cluster_files import Table
from meshwright.cost.memory import Peak
from meshwright.spec.cluster import Device
from meshwright.spec.columns import Number

RANKS = {"first": 0, "last": -1}
"""What `memory_rank` of `catalog/frameworks.toml` means; anything else is the fullest rank."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Where and by what a run's peak memory was read."""

    rank: int | None = None
    """The pipeline rank: 0 the first, -1 the last; None: the fullest."""
    level: str = "allocated"
    """allocated: bytes of tensors; reserved: with the allocator's fragments; device: with context and buffers too."""

    def bytes(self, peak: Peak, device: Device) -> Number:
        """What the reading would show of an estimated peak."""
        tensors = peak.bytes if self.rank is None else peak.rank_bytes(self.rank)
        if self.level == "allocated":
            return tensors
        reached = device.efficiency
        reserved = tensors * (1 + reached.fragmentation)
        return reserved if self.level == "reserved" else reserved + reached.reserved_bytes


FULLEST = MemoryReading()
"""Tensors on the fullest rank."""


def reading_of(software: Table) -> MemoryReading:
    """The reading that an entry of `catalog/frameworks.toml` states."""
    return MemoryReading(RANKS.get(software.get("memory_rank", "")), software.get("memory_level", "allocated"))
