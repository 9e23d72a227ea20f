"""Clock: how often an operation is run, and its mean seconds."""

from __future__ import annotations

from collections.abc import Callable

import torch

from meshwright.bench.clock import durations

WARM_UP = 2
LEAST, MOST = 5, 200
"""Iterations of one size."""
LEAST_SLOW = 3
SLOW_SECONDS = 1.0


def timed(run: Callable[[], None], times: int, device: torch.device) -> float:
    """Mean seconds of a few runs."""
    return float(durations(run, times, device).mean())


def iterations_for(seconds: float, budget: float) -> int:
    """How often something that takes `seconds` is run within `budget` seconds, within sensible bounds."""
    least = LEAST_SLOW if seconds > SLOW_SECONDS else LEAST
    return int(min(max(budget / max(seconds, 1e-9), least), MOST))
