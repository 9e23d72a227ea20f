"""Operations: the sizes of the messages that `comms` measures. Bytes."""

from __future__ import annotations

from meshwright.spec.collective import ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER

ELEMENT_BYTES = 4
"""Messages are of float32."""


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
