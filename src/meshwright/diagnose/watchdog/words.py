"""Collectives in words."""

from __future__ import annotations

from meshwright.diagnose.watchdog.facts import Timeout


def told(one: Timeout) -> str:
    """`ALLREDUCE of 9,801,523 elements`."""
    size = "" if one.elements_in is None else f" of {one.elements_in:,} element{'' if one.elements_in == 1 else 's'}"
    return f"{one.operation or 'a collective'}{size}"
