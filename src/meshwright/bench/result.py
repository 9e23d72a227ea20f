"""Measurement: what a layout did on real devices, with the field names of an Estimate; and the whole of one bench.

Sizes in bytes, times in seconds. `results.json` is these classes as they are (`documents.py` reads and writes it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DONE, OUT_OF_MEMORY, FAILED, TIMED_OUT, REFUSED = "done", "out of memory", "failed", "timed out", "refused"
VERSION = 1
ONE_PROCESS = "one process"
"""Label of the run whose loss all others are held against."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of one quantity over steps and repeats."""

    median: float
    low: float
    """10th percentile."""
    high: float
    """90th percentile."""
    values: tuple[float, ...] = ()

    @property
    def spread(self) -> float:
        """(high - low) / median."""
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredTraffic:
    """One kind of collective on one axis in a step, of the rank that sends most."""

    axis: str
    collective: str
    count: float
    bytes: float
    """Bytes that one device sends in a step."""
    expected_bytes: float
    """What the formulas of `cost.wire` say."""
    seconds: float | None = None
    """From begin to end, added up; None: no trace was taken."""
    exposed_seconds: float | None = None
    """The part beside which the device computes nothing."""


@dataclass(frozen=True, slots=True)
class StageWork:
    """What one pipeline rank does in a step."""

    rank: int
    stages: tuple[int, ...]
    busy_seconds: float
    idle_share: float
    """Of the step, from its first to its last action."""


@dataclass(frozen=True, slots=True)
class Action:
    """One bar of the Gantt chart."""

    rank: int
    stage: int
    micro_batch: int
    kind: str
    """forward, backward, input (its gradient alone), weight."""
    start: float
    """Seconds since the step's begin."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Activity:
    """Where the time of a traced step goes, mean over ranks; seconds."""

    compute: float
    communication: float
    overlapped: float
    """Communication beside which the device computes."""
    exposed: float
    """communication - overlapped."""
    idle: float
    """Neither."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """The Estimate beside a row."""

    step_seconds: float
    tokens_per_second: float
    memory_bytes: float
    verdict: str
    bubble: float
    time: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One layout."""

    label: str
    """The layout as it was asked for."""
    layout: str
    """As it is printed: micro-batch and all."""
    ranks: int
    status: str
    """done, out of memory, failed, timed out, refused."""
    reason: str = ""
    """Of a row that is not done."""
    step: Spread | None = None
    """Seconds of a step, after warm-up, of the slowest rank, with the machine's drift taken out (`drift`)."""
    raw_step_seconds: float | None = None
    """Median of the same as the clock had it."""
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    mfu: float | None = None
    memory_bytes: float | None = None
    """Peak of the fullest rank."""
    memory_kind: str = ""
    """What the figure is of."""
    memory_parts: dict[str, float] = field(default_factory=dict)
    """parameters, gradients, optimizer, rest: bytes of the fullest rank; they add up to memory_bytes."""
    rank_memory_bytes: tuple[float, ...] = ()
    phases: dict[str, float] = field(default_factory=dict)
    """forward, backward, optimizer, …: seconds of a traced step, mean over ranks."""
    activity: Activity | None = None
    traffic: tuple[MeasuredTraffic, ...] = ()
    stages: tuple[StageWork, ...] = ()
    bubble: float | None = None
    """Measured idle share of a pipeline, mean over its ranks."""
    bubble_formula: float | None = None
    gantt: tuple[Action, ...] = ()
    loss: tuple[float, ...] = ()
    grad_norm: tuple[float, ...] = ()
    loss_error: float | None = None
    """Greatest relative difference over the steps to one process's loss; where that did not run, the baseline's."""
    joules_per_step: float | None = None
    trace: str = ""
    """Merged Chrome trace, relative to results.json."""
    predicted: Predicted | None = None
    prediction_missing: str = ""
    """Why there is no prediction."""
    predicted_place: int | None = None
    """Place in the predicted order of the measured rows, from 1."""
    measured_place: int | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Prediction against measurement over the rows that have both."""

    rows: int
    spearman: float | None
    regret: float
    """Share of throughput lost by taking the row that is predicted fastest."""
    median_step_error: float
    median_memory_error: float | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """One bench: the same model, data, precision and global batch under several layouts."""

    created: str
    """ISO 8601, UTC."""
    command: str
    work: dict[str, Any]
    """model, parameters, seq_len, global_batch, tokens_per_step, precision, optimizer, steps, warm_up, repeats."""
    machine: dict[str, Any]
    """device, backend, ranks, nodes, torch, cluster."""
    baseline: str
    """Label of the row that the others are compared with."""
    rows: tuple[Row, ...]
    agreement: Agreement | None = None
    planned: int = 0
    """Runs that were to be done."""
    finished: int = 0
    drift: float = 0.0
    """Slowest of the baseline's runs over its quickest, less 1."""
    version: int = VERSION
