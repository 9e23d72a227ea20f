"""Throughput: tokens a second as a median over the last steps, and MFU from it."""

from __future__ import annotations

from collections import deque
from statistics import median

from meshwright.spec.model import Model
from meshwright.spec.workload import Workload


class Throughput:
    """Speed of the last `window` steps.

    The first step compiles, allocates and warms up: it counts only while it is the only one. The median lets one slow
    step (a checkpoint, an evaluation) pass.
    """

    def __init__(self, window: int = 20) -> None:
        self._first: tuple[int, float] | None = None
        self._steps: deque[tuple[int, float]] = deque(maxlen=window)

    def add(self, tokens: int, seconds: float) -> None:
        """Count one step of so many tokens."""
        if self._first is None:
            self._first = tokens, seconds
        else:
            self._steps.append((tokens, seconds))

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second. Raises ValueError before the first step."""
        return median(tokens / seconds for tokens, seconds in self._known())

    @property
    def step_seconds(self) -> float:
        """Seconds of a step. Raises ValueError before the first step."""
        return median(seconds for _, seconds in self._known())

    def _known(self) -> list[tuple[int, float]]:
        if self._first is None:
            raise ValueError("No step has been counted yet.")
        return list(self._steps) or [self._first]


def mfu(model: Model, workload: Workload, step_seconds: float, devices: int, peak_flops: float) -> float:
    """Model FLOPs of a step as a share of what `devices` of `peak_flops` FLOP/s each could do meanwhile.

    The FLOPs are `cost.flops.FORMULA` (PaLM, arXiv:2204.02311 appendix B), the same as an Estimate's.
    """
    from meshwright.cost.flops import model_flops

    return model_flops(model, workload) / (peak_flops * devices * step_seconds)
