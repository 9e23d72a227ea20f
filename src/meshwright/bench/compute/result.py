"""What `comms --compute` found: samples, the Device that was fitted to them, and how well it tells them."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.spec.cluster import Device


@dataclass(frozen=True, slots=True)
class Sample:
    """One thing that was timed."""

    kind: str
    """product, attention, elementwise, layer, head, optimizer."""
    name: str
    seconds: float
    """Mean over a window, the median of the ranks."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A device, and what it was fitted to."""

    device: Device
    host_memory_bytes: float
    """Of a node."""
    samples: tuple[Sample, ...]
    fitted_seconds: tuple[float, ...]
    """What the cost model says of each sample with this device."""
    errors: tuple[tuple[str, float, float], ...]
    """Median and worst relative error of each kind."""
    lines: tuple[str, ...]
    """What a person reads."""
    implementation: str = ""
    """The class of software that the constants are fitted for."""
    meeting_s: float = 0.0
    """What a collective behind work costs beyond both by themselves (`meeting`)."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Comments of the cluster file."""
        return self.lines
