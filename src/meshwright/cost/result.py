"""Estimate: what the formulas say of one layout. The same field names as a Rehearsal and a Measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.spec.cluster import Cluster
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

FITS, AT_RISK, DOES_NOT_FIT = "fits", "at risk", "does not fit"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the fullest device."""

    peak_bytes: float
    """The allocator's peak: the sum of `parts`."""
    parts: Mapping[str, float]
    """parameters, gradients, optimizer, activations, gathered, logits, buffers, …: bytes at the peak instant."""
    peak_instant: str
    """When the peak happens: end of forward, loss, backward, reduction, optimizer step."""
    instants: Mapping[str, float]
    """Bytes alive at each named instant."""
    stage: int
    """The pipeline rank that is fullest."""
    reserved_bytes: float
    """What the device must have: peak, fragmentation, context and communication buffers."""
    capacity_bytes: float
    verdict: str
    host_bytes: float = 0.0
    """Host memory a node needs for offloaded states."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One kind of collective on one axis, in a step, for one device."""

    axis: str
    collective: str
    count: float
    bytes: float
    """Bytes that one device sends in a step."""
    seconds: float
    exposed_seconds: float
    """Seconds that they add to the step; of sends in a pipeline with what a rank waits for other ranks' sends."""
    bandwidth_to_hide: float
    """Bytes/s that the axis would need for the traffic to vanish behind compute; 0: cannot be hidden."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Everything the formulas say of one layout."""

    model: Model
    cluster: Cluster
    workload: Workload
    layout: Layout
    step_seconds: float
    time: Mapping[str, float]
    """Seconds by part; they add up to step_seconds."""
    memory: Memory
    traffic: tuple[Traffic, ...]
    parameters: float
    active_parameters: float
    parameters_per_device: float
    state_bytes_per_parameter: float
    model_flops: float
    """FLOPs of one step without recomputation, all devices."""
    hardware_flops: float
    """With recomputation."""
    mfu: float
    hfu: float
    bubble: float
    """Idle share of the pipeline."""
    tokens_per_second_per_device: float
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
