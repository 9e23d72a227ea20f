"""Bars of block characters."""

from __future__ import annotations

EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int = 24) -> str:
    """A bar that fills `share` (0 to 1, else clipped) of `width` characters, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (EIGHTHS[rest] if rest else "")
