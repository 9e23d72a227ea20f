"""The constants that a fit may change, from `catalog/free_constants.toml`: whose, where to start, how far to go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from meshwright.catalog.cluster_files import read_table
from meshwright.catalog.software_files import HERE
from meshwright.spec.cluster import Efficiency
from meshwright.spec.cluster_catalog import near
from meshwright.spec.errors import RequestError
from meshwright.spec.implementation import Implementation, implementations

FILE = HERE / "free_constants.toml"
DEVICE, IMPLEMENTATION = "device", "implementation"
DEFAULT = "default"
"""Owner of what the devices share that have no value of their own, neither free nor in `efficiency.toml`."""


@dataclass(frozen=True, slots=True)
class FreeConstant:
    """One constant that a fit may change."""

    kind: str
    """DEVICE (a field of Efficiency) or IMPLEMENTATION (a field of Implementation)."""
    owner: str
    """A chip (`A100`: every device built on it), DEFAULT, or a class of software."""
    name: str
    start: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.kind}.{self.owner}.{self.name}"


@dataclass(frozen=True, slots=True)
class FreeTable:
    """What a fit starts from."""

    constants: tuple[FreeConstant, ...]
    weights: Mapping[str, float]
    """Weight of all rows of a source together, by `source single-node`, `source multi-node` or `source`; else 1."""


def read_free_constants(path: Path = FILE) -> FreeTable:
    """The table at `path`. Raises RequestError: an unknown class or constant, a start that is not within its bounds."""
    table = read_table(path)
    constants = []
    for kind, known in ((DEVICE, _numbers(Efficiency)), (IMPLEMENTATION, _numbers(Implementation))):
        for owner, own in table.get(kind, {}).items():
            if kind == IMPLEMENTATION and owner not in implementations():
                raise RequestError(f"{path.name}: no class of software is called {owner!r}.", sorted(implementations()))
            for name, numbers in own.items():
                if name not in known:
                    raise RequestError(f"{path.name}, [{kind}.{owner}]: unknown constant {name!r}.", near(name, known))
                constants.append(FreeConstant(kind, owner, name, *_within(numbers, f"{kind}.{owner}.{name}")))
    return FreeTable(tuple(constants), table.get("weights", {}))


def _numbers(noun: type[Any]) -> list[str]:
    return [f.name for f in fields(noun) if f.type == "float"]


def _within(numbers: Any, where: str) -> tuple[float, float, float]:
    legal = ("[start, low, high] with low ≤ start ≤ high and low < high",)
    if not isinstance(numbers, list) or len(numbers) != 3 or not all(isinstance(n, int | float) for n in numbers):
        raise RequestError(f"{where} is {numbers!r}.", legal)
    start, low, high = (float(number) for number in numbers)
    if not low <= start <= high or low == high:
        raise RequestError(f"{where} is {numbers!r}.", legal)
    return start, low, high
