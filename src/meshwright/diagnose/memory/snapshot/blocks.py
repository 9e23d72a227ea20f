"""What was alive on a device when a snapshot was taken, and how the rest lay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from meshwright.diagnose.memory.snapshot.read import ACTIVE, INACTIVE, Event, Segment

TOP = 5
"""Allocation sites that are named."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Bytes of one device."""

    device: int
    reserved: int
    active: int
    waiting: int
    """Freed by the program and still used by another stream."""
    inactive: int
    pinned: int
    """Inactive, in segments that something alive keeps from being returned."""
    largest: int
    """Contiguous and inactive."""
    listed: bool
    """Whether every segment's blocks are listed in full, so that `largest` is true."""
    sites: tuple[tuple[str, int], ...]
    """The largest allocation sites, bytes."""
    expandable: bool


def layouts(segments: Iterable[Segment]) -> dict[int, Layout]:
    """By device."""
    by_device: dict[int, list[Segment]] = {}
    for one in segments:
        by_device.setdefault(one.device, []).append(one)
    return {device: _layout(device, same) for device, same in sorted(by_device.items())}


def _layout(device: int, segments: list[Segment]) -> Layout:
    by_state: Counter[str] = Counter()
    sites: Counter[str] = Counter()
    pinned = 0
    for segment in segments:
        free = 0
        for block in segment.blocks:
            state = block.state if block.state in (ACTIVE, INACTIVE) else "waiting"
            by_state[state] += block.size
            free += block.size if state == INACTIVE else 0
            if state == ACTIVE and block.site:
                sites[block.site] += block.size
        pinned += free if free < segment.size else 0
    return Layout(
        device, sum(one.size for one in segments), by_state[ACTIVE], by_state["waiting"], by_state[INACTIVE], pinned,
        max((_largest(one) for one in segments), default=0), all(one.complete for one in segments),
        tuple(sites.most_common(TOP)), any(one.expandable for one in segments),
    )  # fmt: skip


def _largest(segment: Segment) -> int:
    """The longest run of inactive blocks. Blocks are listed in the order of their addresses."""
    best = run = 0
    for block in segment.blocks:
        run = run + block.size if block.state == INACTIVE else 0
        best = max(best, run)
    return best


def last_failure(trace: Iterable[Event]) -> tuple[Event | None, bool]:
    """The last `oom` of a device's trace, and whether nothing was allocated or freed since."""
    found, fresh = None, False
    for event in trace:
        if event.action == "oom":
            found, fresh = event, True
        elif event.action != "snapshot":
            fresh = False
    return found, fresh
