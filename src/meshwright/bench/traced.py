"""What one rank's trace says of a step: phases, activity, collectives, pipeline actions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from meshwright.diagnose.traces.activity import Phase, busy, phases, sent
from meshwright.diagnose.traces.events import read_trace

WORK = ("forward", "backward", "input", "weight")
"""Phases in which a pipeline's rank is busy."""


def summary(path: Path) -> dict[str, Any]:
    """Numbers of the traced steps as a mean, and the actions of the last one; times in seconds on the trace's clock."""
    trace = read_trace(path)
    ranges = phases(trace)
    steps = [one for one in ranges if one.phase == "step"]
    synced = next((one.end for one in ranges if one.phase == "sync"), 0.0)
    if not steps:
        return {"steps": 0}
    start, end = steps[0].start, steps[-1].end
    inside = [one for one in ranges if start <= one.start < end]
    last = [one for one in inside if one.phase in WORK and one.start >= steps[-1].start]
    return {
        "steps": len(steps),
        "sync": synced + trace.base_seconds,
        "start": steps[-1].start + trace.base_seconds,
        "end": end + trace.base_seconds,
        "phases": _by_phase(inside, len(steps)),
        "busy": {name: value / len(steps) for name, value in asdict(busy(trace, start, end)).items()},
        "sent": [
            {**asdict(one), "count": one.count / len(steps), "seconds": one.seconds / len(steps),
             "exposed": one.exposed / len(steps)}
            for one in sent(trace, start, end)
        ],
        "actions": [
            {"phase": one.phase, "stage": one.stage or 0, "micro_batch": one.micro_batch or 0,
             "start": one.start + trace.base_seconds, "seconds": one.end - one.start}
            for one in last
        ],
    }  # fmt: skip


def _by_phase(ranges: list[Phase], steps: int) -> dict[str, float]:
    """Mean seconds of a step by phase; input and weight gradients are backward."""
    found: dict[str, float] = {}
    for one in ranges:
        if one.phase not in ("step", "sync"):
            name = "backward" if one.phase in ("input", "weight") else one.phase
            found[name] = found.get(name, 0.0) + (one.end - one.start) / steps
    return found
