"""Operations: the collectives that `comms` measures, their message sizes, and what their bandwidth counts.

Sizes and bandwidths are nccl-tests' (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): the size of an all-gather or a
reduce-scatter is that of the whole tensor, of an all-to-all what one rank sends to all, itself among them. Algorithm
bandwidth is size / time; bus bandwidth multiplies it by a factor of the operation, so that it can be held against a
link's. For send/recv every rank sends to the next one of a ring and receives from the one before.
"""

from __future__ import annotations

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
ALL_TO_ALL, BROADCAST, SEND = "all-to-all", "broadcast", "send/recv"
OPERATIONS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, SEND)

ELEMENT_BYTES = 4
"""Messages are of float32."""
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


def message_bytes(operation: str, wanted: int, ranks: int) -> int:
    """The size that is measured for a `wanted` one: whole elements, as many on every rank where ranks hold parts."""
    parts = ranks if operation in (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL) else 1
    grain = ELEMENT_BYTES * parts
    return max(-(-wanted // grain), 1) * grain


def sizes(least: int, most: int) -> list[int]:
    """Sizes from `least` bytes on, each twice the one before, up to `most`."""
    found = []
    size = max(least, 1)
    while size <= most:
        found.append(size)
        size *= 2
    return found
