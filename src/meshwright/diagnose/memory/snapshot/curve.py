"""What a device's memory did over a recorded history: the baseline between peaks, and the reserve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.diagnose.memory.snapshot.read import Event

WINDOWS = 10
"""Parts of a history whose lowest points are compared."""
FEWEST = 400
"""Events below which a history says nothing of trends."""
SETTLED = 3
"""Windows at the start that are not looked at: parameters and optimizer states are made there."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A history in windows of equal numbers of events, bytes above the first event's level."""

    lows: tuple[int, ...]
    peaks: tuple[int, ...]
    reserved: tuple[int, ...]
    """At the end of each window."""
    kept: tuple[tuple[str, int], ...]
    """Sites of what was allocated after `SETTLED` windows and not freed until the end."""
    frames: str
    """The frames of the largest of them."""


def curve(trace: Sequence[Event]) -> Curve | None:
    """The windows of a history; None: it is too short."""
    moves = [event for event in trace if event.action in ("alloc", "free_completed", "segment_alloc", "segment_free",
                                                          "segment_map", "segment_unmap")]  # fmt: skip
    if len(moves) < FEWEST:
        return None
    lows, peaks, reserved = [], [], []
    level = held = 0
    alive: dict[int, Event] = {}
    step = len(moves) / WINDOWS
    for window in range(WINDOWS):
        low, high = level, level
        for event in moves[int(window * step) : int((window + 1) * step)]:
            if event.action in ("alloc", "free_completed"):
                level += event.size if event.action == "alloc" else -event.size
                low, high = min(low, level), max(high, level)
                if event.action == "free_completed":
                    alive.pop(event.address, None)
                elif window >= SETTLED:
                    alive[event.address] = event
            else:
                held += event.size if event.action in ("segment_alloc", "segment_map") else -event.size
        lows.append(low)
        peaks.append(high)
        reserved.append(held)
    return Curve(tuple(lows), tuple(peaks), tuple(reserved), *_kept(alive))


def _kept(alive: dict[int, Event]) -> tuple[tuple[tuple[str, int], ...], str]:
    sites: Counter[str] = Counter()
    frames: dict[str, str] = {}
    for event in alive.values():
        sites[event.site] += event.size
        frames.setdefault(event.site, event.frames)
    top = sites.most_common(3)
    return tuple(top), frames.get(top[0][0], "") if top else ""
