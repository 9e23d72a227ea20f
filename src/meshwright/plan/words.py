"""Words that several answers share."""

from __future__ import annotations

from meshwright.spec.units import percent

TWICE = 2.0
"""From here on, how many times as long says more than a percentage."""


def longer(times: float, than: str = "") -> str:
    """`3.1 % slower`, or from TWICE on `46.3 times as long`; with `than`, against what."""
    if times >= TWICE:
        return f"{times:.3g} times as long" + (f" as {than}" if than else "")
    return f"{percent(times - 1)} slower" + (f" than {than}" if than else "")
