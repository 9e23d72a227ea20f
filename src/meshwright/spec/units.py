"""Quantities as people write them: bytes, bandwidth, seconds, counts. Parsing is strict, printing is short.

`B` is a byte and `b` a bit; `G` is 1e9 and `Gi` is 2**30. Nothing is guessed: `80G` and `25gb/s` are refused.
In code, sizes are bytes, bandwidths bytes/s and times seconds.
"""

from __future__ import annotations

import math
import re

from meshwright.spec.errors import RequestError

KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40

DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BINARY = {"Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": TIB, "Pi": 2.0**50}

PREFIXES = ("K", "M", "G", "T", "P")

BYTES = {prefix + "B": factor for prefix, factor in (DECIMAL | BINARY).items()}
BANDWIDTHS = {
    **{size + rate: factor for size, factor in BYTES.items() for rate in ("/s", "ps")},
    **{f"{prefix}{bit}": factor / 8 for prefix, factor in DECIMAL.items() for bit in ("b/s", "bps", "bit/s")},
    **{f"{prefix.lower()}bps": factor / 8 for prefix, factor in DECIMAL.items()},
}
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}

QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([^\W\d_][^\s\d]*)?")
"""A number and a unit, with or without a space between them."""


class UnitError(RequestError):
    """A quantity that cannot be read."""


def parse_bytes(text: str) -> float:
    """Bytes from `80 GiB` (2**30) or `80GB` (1e9). Raises UnitError for other units, none at all, and sizes below 0."""
    return _parse(text, BYTES, "a size", ("80 GiB", "80 GB"), ("GB", "GiB"))


def parse_bandwidth(text: str) -> float:
    """Bytes/s from `200 Gbps`, `200Gb/s` (bits) or `25 GB/s` (bytes). Raises UnitError for anything else."""
    return _parse(text, BANDWIDTHS, "a bandwidth", ("200 Gbps", "25 GB/s"), ("Gbps", "GB/s"))


def parse_seconds(text: str) -> float:
    """Seconds from `5us`, `1.2 ms`, `3 s`, `2 min`, `1 h`, `4 d`. Raises UnitError for anything else."""
    return _parse(text, SECONDS, "a time", ("5 us", "1.2 ms", "3 s", "2 min", "1 h", "4 d"))


def parse_count(text: str) -> float:
    """A number from `7.1B`, `350M`, `1e9` or `4096`. Raises UnitError for other suffixes and numbers below 0."""
    return _parse(text, COUNTS, "a count", ("7.1B", "350M", "4096"))


def _parse(
    text: str, units: dict[str, float], what: str, examples: tuple[str, ...], giga_forms: tuple[str, ...] = ()
) -> float:
    """The number times its unit's factor; `giga_forms` are the units to offer when only the prefix was understood."""
    match = QUANTITY.fullmatch(text.strip())
    factor = units.get(match[2] or "") if match else None
    if match is None or factor is None:
        prefix = (match[2] or "")[:1].upper() if match else ""
        meant = (
            [f"{match[1]} {form.replace('G', prefix)}" for form in giga_forms] if match and prefix in PREFIXES else []
        )
        raise UnitError(f"{_short(text)} is not {what}.", meant or examples)
    value = float(match[1]) * factor
    if value < 0 or not math.isfinite(value):
        raise UnitError(f"{_short(text)} is not {what}: it must be finite and not below 0.", examples)
    return value


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")


def gib(size: float) -> str:
    """Bytes as GiB with one decimal: `12.3 GiB`."""
    return f"{size / GIB:,.1f} GiB"


def binary(size: float) -> str:
    """Bytes in the binary unit that suits them, three digits: `112 MiB`, `1.46 TiB`."""
    return _scaled(size, (("PiB", 2.0**50), ("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1.0)), 1024.0)


def gb_per_s(bytes_per_s: float) -> str:
    """Bytes/s as GB/s: `25 GB/s`."""
    return f"{_digits(bytes_per_s / 1e9)} GB/s"


def gbps(bytes_per_s: float) -> str:
    """Bytes/s as gigabits a second: `200 Gbps`."""
    return f"{_digits(bytes_per_s * 8 / 1e9)} Gbps"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them, three digits: `45 µs`, `532 ms`, `2.63 s`, `3.5 min`, `12.1 h`, `4.2 d`."""
    if seconds == 0:
        return "0 s"
    if seconds < 120:
        return _scaled(seconds, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)), 1000.0)
    for unit, size, limit in (("min", 60.0, 7200.0), ("h", 3600.0, 172800.0)):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86400:,.1f} d"


def count(number: float) -> str:
    """A number in thousands, millions, billions (1e9) or trillions, three digits: `6.74 B`, `512`."""
    return _scaled(number, (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3), ("", 1.0)), 1000.0).rstrip()


def flops(per_second: float) -> str:
    """FLOP/s in the unit that suits them: `312 TFLOP/s`, `2.25 PFLOP/s`."""
    units = (("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6), ("FLOP/s", 1.0))
    return _scaled(per_second, units, 1000.0)


def percent(share: float) -> str:
    """A share of 1 as a percentage with one decimal: `46.7 %`."""
    # A rounding error below zero is no minus.
    return f"{round(share * 100, 1) + 0.0:.1f} %"


def _scaled(value: float, units: tuple[tuple[str, float], ...], step: float) -> str:
    """`value` in the largest unit of which it holds at least one after rounding; units fall from large to small."""
    for unit, size in units[:-1]:
        if abs(value) >= size * (1 - 0.5 / step):
            return f"{_digits(value / size)} {unit}"
    unit, size = units[-1]
    return f"{_digits(value / size)} {unit}"


def _digits(value: float) -> str:
    """Three significant digits without an exponent or trailing zeros; whole numbers from 1,000 with separators."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:.{min(places, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
