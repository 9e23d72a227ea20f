"""Times that DeepSpeed (wall_clock_breakdown) and Megatron (timers, straggler lines) print of a step, in milliseconds.

DeepSpeed: `rank=0 time (ms) | forward_microstep: 1.2 | …` and `forward: …` (runtime/engine.py, utils/timer.py).
Megatron: `time (ms) | forward-compute: …` until 2023, since then `(min, max) time across ranks (ms):` and one timer a
line (megatron/core/timers.py); `MnRtt/Rnk: 3453.08ms/8 | …` (core/README_STRAGGLER.md).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.line import Line

KIND = "step times"
LAST = 64
"""Steps of each timer that are kept: the median of them is judged, not one slow step."""
MOST_TIMERS = 512

_ONE = re.compile(r"\|\s*([A-Za-z][\w/ -]{1,60}?): ?(\d{1,12}(?:\.\d{1,9})?)(?=\s*(?:\||$|\s))")
_RANGE = re.compile(r"(?<![\w/-])([A-Za-z][\w/-]{1,60}) ?\.*: ?\((\d{1,12}(?:\.\d{1,9})?), ?(\d{1,12}(?:\.\d{1,9})?)\)")
_STRAGGLER = re.compile(r"(M[nx]\w+)/Rnk: ?(\d{1,12}(?:\.\d{1,9})?)([A-Za-z]*)/(\d{1,7})")


@dataclass
class Timer:
    """One of them."""

    line: Line
    least: deque[float] = field(default_factory=lambda: deque(maxlen=LAST))
    most: deque[float] = field(default_factory=lambda: deque(maxlen=LAST))
    """The same as `least` where only one rank is told of."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or the most of a quantity, and whose it is."""

    line: Line
    value: float
    rank: int


@dataclass
class Times:
    """By name; and the extremes of Megatron's straggler lines, in order."""

    timers: dict[str, Timer] = field(default_factory=dict)
    extremes: dict[str, deque[Extreme]] = field(default_factory=dict)
    ranges: bool = False
    """Whether least and most over ranks were told."""


def collect(line: Line, facts: Facts) -> str:
    """Takes the times of a line."""
    known, text = facts.of(Times), line.text
    if "Rtt/Rnk" in text and (found := _STRAGGLER.findall(text)):
        for name, value, _, rank in found:
            kept = known.extremes.setdefault(name, deque(maxlen=LAST)) if len(known.extremes) < MOST_TIMERS else deque()
            kept.append(Extreme(line, float(value), int(rank)))
        return KIND
    if "time (ms) |" in text:
        for name, value in _ONE.findall(text[text.index("time (ms)") :]):
            _add(known, line, name.strip(), float(value), float(value))
        return KIND
    if ": (" in text and (one := _RANGE.search(text)) is not None:
        known.ranges = True
        _add(known, line, one[1], float(one[2]), float(one[3]))
        return KIND
    return ""


def _add(known: Times, line: Line, name: str, least: float, most: float) -> None:
    if name not in known.timers and len(known.timers) >= MOST_TIMERS:
        return
    timer = known.timers.setdefault(name, Timer(line))
    timer.least.append(least)
    timer.most.append(most)
