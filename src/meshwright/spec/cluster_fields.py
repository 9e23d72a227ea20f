"""Checked values of a cluster file: every error names the file, the key and what is legal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.spec.cluster_catalog import near
from meshwright.spec.errors import ClusterError
from meshwright.spec.units import UnitError, parse_bandwidth, parse_bytes, parse_count, parse_seconds

Table = Mapping[str, Any]

UNITS: dict[str, Callable[[str], float]] = {
    "memory_bytes": parse_bytes,
    "host_memory_bytes": parse_bytes,
    "reserved_bytes": parse_bytes,
    "memory_bytes_per_s": parse_bandwidth,
    "nvme_bytes_per_s": parse_bandwidth,
    "bytes_per_s": parse_bandwidth,
    "latency_s": parse_seconds,
    "matmul_overhead_s": parse_seconds,
    "collective_overhead_s": parse_seconds,
}
"""How a text is read, by the key it stands under; under other keys it is a count (`312T`)."""
FROM_ZERO = {
    "latency_s",
    "congestion",
    "reserved_bytes",
    "fragmentation",
    "lent",
    "matmul_overhead_s",
    "matmul_tile",
    "collective_overhead_s",
}
SHARES = {"matmul", "matmul_fp8", "attention", "memory", "fragmentation", "lent"}
"""At most 1. Not `link` and `network`: switches that add up in flight (NVLS, SHARP) beat the nominal figure."""
MOST = 1e30
MOST_DEVICES = 2**20


@dataclass(frozen=True, slots=True)
class Fields:
    """Takes values out of the tables of one file; `where` names the file. All methods raise ClusterError."""

    where: str

    def known(self, table: Any, legal: Iterable[str], name: str) -> Table:
        """`table`, if it is one and has no other keys than the legal ones."""
        if not isinstance(table, Mapping):
            raise self.error(f"{name} must be a table, not {shown(table)}.")
        keys = sorted(legal)
        for key in table:
            if key not in keys:
                raise self.error(f"unknown key {key[:60]!r} in {name}.", near(key, keys))
        return table

    def number(self, value: Any, key: str) -> float:
        """A finite number above 0 (from 0 for latencies and the like; up to 1 for shares), or a text with a unit."""
        if isinstance(value, str):
            try:
                value = UNITS.get(key, parse_count)(value)
            except UnitError as error:
                raise self.error(f"{key}: {error}") from error
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"{key} must be a number, not {shown(value)}.")
        low, above = (value >= 0, "from 0") if key in FROM_ZERO else (value > 0, "above 0")
        most = 1.0 if key in SHARES else MOST
        if not (low and value <= most):  # not (value > most): NaN must fail too
            raise self.error(f"{key} must be {above} and at most {most:g}, not {shown(value)}.")
        return float(value)

    def numbers(self, table: Any, legal: Iterable[str], name: str) -> dict[str, float]:
        """A table of numbers."""
        return {key: self.number(value, key) for key, value in self.known(table, legal, name).items()}

    def whole(self, table: Table, key: str) -> int | None:
        """A whole number of devices or nodes, or None where the key is absent."""
        value = table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_DEVICES:
            raise self.error(f"{key} must be a whole number from 1 to {MOST_DEVICES:,}, not {shown(value)}.")
        return value

    def text(self, value: Any, key: str) -> str:
        """A text; only a `source` may be empty."""
        if not isinstance(value, str) or not (value.strip() or key == "source"):
            raise self.error(f"{key} must be a text, not {shown(value)}.")
        return value

    def texts(self, value: Any, key: str) -> tuple[str, ...]:
        """A list of texts."""
        if not isinstance(value, list):
            raise self.error(f"{key} must be a list of texts, not {shown(value)}.")
        return tuple(self.text(item, key) for item in value)

    def error(self, message: str, legal: Iterable[str] = ()) -> ClusterError:
        """An error that names the file."""
        return ClusterError(f"{self.where}: {message}", tuple(legal))


def shown(value: Any) -> str:
    """A value in an error message, cut short; Python refuses to print integers of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "…"
