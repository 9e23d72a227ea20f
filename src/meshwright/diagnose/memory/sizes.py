"""Sizes as PyTorch and other programs print them, in bytes and back."""

from __future__ import annotations

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZE = r"(\d{1,20}(?:\.\d{1,9})?) ?(bytes|B|[KMGTPE]i?B?)\b"
"""A number and a unit. PyTorch's `format_size` prints two decimals and KiB, MiB or GiB."""
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def in_bytes(number: str, unit: str) -> float:
    """Bytes. `GB` and `G` are read as `GiB`: the programs whose texts are read here divide by 2**30."""
    return float(number) * 1024.0 ** _POWERS.get(unit[:1], 0)


def rounding(number: str, unit: str) -> float:
    """Bytes by which a printed size may differ from the true one: half of its last digit."""
    decimals = len(number.partition(".")[2])
    return 0.5 * 10.0**-decimals * 1024.0 ** _POWERS.get(unit[:1], 0)


def shown(size: float) -> str:
    """As people read it: `1.96 GiB`, `210 MiB`."""
    if size >= GIB:
        return f"{size / GIB:.2f} GiB"
    return f"{size / MIB:.0f} MiB" if size >= MIB else f"{size / KIB:.0f} KiB"


def percent(part: float, whole: float) -> str:
    """A share for people; "?" of nothing."""
    return f"{100 * part / whole:.0f} %" if whole > 0 else "?"
