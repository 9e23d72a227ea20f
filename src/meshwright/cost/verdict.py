"""Verdict: does it fit."""

from __future__ import annotations

from meshwright.cost.result import AT_RISK, DOES_NOT_FIT, FITS

RISK_SHARE = 0.95
"""Above this share of the device's memory, an error of a few per cent in the estimate decides."""


def verdict(reserved_bytes: float, capacity_bytes: float) -> str:
    """`does not fit` when tensors and reserve together exceed the device, `at risk` when they come close."""
    if reserved_bytes > capacity_bytes:
        return DOES_NOT_FIT
    return AT_RISK if reserved_bytes > RISK_SHARE * capacity_bytes else FITS
