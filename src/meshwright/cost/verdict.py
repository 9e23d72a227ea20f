"""Verdict: does it fit."""

from __future__ import annotations

from meshwright.cost.result import AT_RISK, DOES_NOT_FIT, FITS
from meshwright.spec.cluster import Device
from meshwright.spec.columns import Number

RISK_SHARE = 0.95
"""Above this share of the device's memory, an error of a few per cent in the estimate decides."""


def with_reserve(peak: Number, device: Device) -> Number:
    """What a device must have for a peak of tensors: fragmentation on top, context and communication buffers beside."""
    return peak * (1 + device.efficiency.fragmentation) + device.efficiency.reserved_bytes


def verdict(reserved_bytes: float, capacity_bytes: float, host_bytes: float = 0.0, host_capacity: float = 0.0) -> str:
    """`does not fit` when tensors and reserve together exceed the device, `at risk` when they come close.

    Offloaded states that exceed a node's memory do not fit either.
    """
    if reserved_bytes > capacity_bytes or host_bytes > host_capacity:
        return DOES_NOT_FIT
    near = reserved_bytes > RISK_SHARE * capacity_bytes or host_bytes > RISK_SHARE * host_capacity
    return AT_RISK if near else FITS
