"""What `check` found: the reference, and each layout beside it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Worst:
    """The parameter that is furthest off."""

    name: str
    error: float
    """Relative to the largest number of the parameter's own reference."""


@dataclass(frozen=True)
class TrafficRow:
    """What the busiest rank sent on one axis in a step, beside what the formula says of that rank."""

    axis: str
    collective: str
    count: int
    bytes: int
    expected_bytes: int | None
    """None: there is no formula (it depends on where the router sends tokens)."""


@dataclass(frozen=True)
class LayoutResult:
    """One layout beside one process, over all accumulations."""

    layout: str
    passed: bool
    devices: int
    micro_batches: tuple[int, ...]
    """Micro-batches a step of each run."""
    loss_error: float
    """Relative, the worst of all steps and runs."""
    grad_norm_error: float
    worst_gradient: Worst
    worst_update: Worst
    parameters: int
    """Parameters that the ranks hold together, each counted once."""
    replicas_identical: bool
    explanation: str
    """What is wrong, in words; empty when passed."""
    tolerance: float
    traffic: tuple[TrafficRow, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class CheckResult:
    """The whole answer."""

    model: str
    dtype: str
    parameters: int
    loss: tuple[float, ...]
    grad_norm: tuple[float, ...]
    layouts: tuple[LayoutResult, ...] = field(default_factory=tuple)

    @property
    def passed(self) -> bool:
        """Whether every layout computes what one process computes."""
        return all(one.passed for one in self.layouts)
