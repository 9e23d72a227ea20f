"""Rehearsal: what one rank's program did, with the field names of an Estimate and a Measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.cost.wire_row import WireRow


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment of the program."""

    step: int
    """From 1."""
    phase: str
    """forward, backward, …, with stage and micro-batch."""
    module: str
    """Path; "" outside of all."""

    def __str__(self) -> str:
        return f"step {self.step}, {self.phase}" + (f", {self.module}" if self.module else "")


@dataclass(frozen=True, slots=True)
class Span:
    """A phase of a step."""

    start: int
    """Number of its first event in the step, from 0."""
    end: int
    """Of the first one after it."""
    phase: str
    stage: int | None
    micro_batch: int | None


@dataclass(frozen=True, slots=True)
class Stack:
    """Bytes on the device by part, over the step that has the peak: allocations and frees in their order, not time."""

    step: int
    events: int
    """In the step."""
    at: tuple[int, ...]
    """Number, from 0, of the first event of each run of events; its highest moment is shown."""
    peak: int
    """Which of the moments is the peak."""
    where: tuple[str, ...]
    """Phase and module of each moment."""
    parts: Mapping[str, tuple[float, ...]]
    """Bytes at each moment, of the parts that are ever there, in the order in which they are stacked."""
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class RankRehearsal:
    """One rank."""

    rank: int
    pipeline_rank: int
    stages: tuple[int, ...]
    peak_bytes: float
    peak: Instant
    parts: Mapping[str, float]
    """Bytes at the peak; they add up to it. parameters, gradients, optimizer, activations, gathered, communication,
    logits, temporary, buffers."""
    host_bytes: float
    """The most that was in the host's memory: what is offloaded."""
    host_parts: Mapping[str, float]
    """Bytes there at that moment."""
    activations: Mapping[str, float]
    """Bytes at the peak that wait for backward, by module."""
    states: Mapping[str, float]
    """parameters, gradients, optimizer: bytes after the last step (gradients: before they are dropped)."""
    flops: Mapping[str, Mapping[str, float]]
    """Of the last step, by phase and kind of operation."""
    module_flops: Mapping[str, float]
    """Of the last step, by module."""
    traffic: tuple[WireRow, ...]
    """Collectives of the last step."""
    collectives: tuple[str, ...]
    """One line each, in order."""
    kept: Mapping[str, float]
    """Bytes that one forward of one micro-batch keeps for backward, by module (of the last step)."""
    timeline: tuple[tuple[int, float, str], ...]
    """(operation, bytes alive, what runs), where it changes much."""
    operations: int
    """Of PyTorch, in all steps."""
    seconds: float
    """That the rehearsal took."""
    micro_batches: int = 1
    """Of a data rank, a step."""
    micro_batches_run: int = 1
    """Of these, that were run: the others do what one of them does (`shortened`)."""
    windows: tuple[int, ...] = (0,)
    """By layer: tokens that attention sees; 0: all before it."""
    activation: str = ""
    """Of the feed-forward parts."""
    balanced: bool = True
    """Whether mixtures have a load-balancing loss."""
    step_peaks: tuple[float, ...] = ()
    """Peak of each step."""
    history: tuple[tuple[int, int, str], ...] = ()
    """(block, bytes more or fewer, what runs) of every event, where it was asked for."""
    stack: Stack | None = None
    """The same."""
