"""The part of the document of `comms --json` that `--compute` adds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from meshwright.bench.compute.result import Measured


def compute_document(measured: Measured) -> dict[str, Any]:
    """The device's numbers, and every shape that was measured beside what they say of it; seconds."""
    device = measured.device
    return {
        "device": device.name,
        "implementation": measured.implementation,
        "memory_bytes": device.memory_bytes,
        "memory_bytes_per_s": device.memory_bytes_per_s,
        "peak_flops": dict(device.peak_flops),
        "meeting_s": measured.meeting_s,
        "efficiency": asdict(device.efficiency),
        "shapes": [
            {"kind": sample.kind, "name": sample.name, "seconds": sample.seconds, "fitted_seconds": fitted}
            for sample, fitted in zip(measured.samples, measured.fitted_seconds, strict=True)
        ],
        "errors": [
            {"kind": kind, "median_error": middle, "worst_error": worst} for kind, middle, worst in measured.errors
        ],
    }
