"""Compare: recorded collectives beside those that `wire` expects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meshwright.cost.wire.local import KV_COPIES, kv_copies
from meshwright.cost.wire.place import axis_ranks
from meshwright.cost.wire_row import WireRow
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model

ORDER = (
    "tensor",
    "context",
    "expert",
    "pipeline",
    "shard",
    "data",
    "replicate",
    "expert_shard",
    "expert_data",
    "expert_replicate",
    "sequence",
    "stage",
    "world",
)
"""Of axes with the same ranks, the first is the name of all (as in `modes.axis_names`)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Collectives of one kind on one axis, recorded and expected."""

    axis: str
    collective: str
    count: int
    bytes: float
    expected_count: int
    """0: the formulas do not say."""
    expected_bytes: float
    approximate: bool = False
    """Depends on the data: `agrees` does not judge it."""

    @property
    def agrees(self) -> bool:
        """Whether count and bytes are as expected, to the rounding of a division by the ranks."""
        counts = not self.expected_count or self.count == self.expected_count
        near = abs(self.bytes - self.expected_bytes) <= 1e-9 * max(self.expected_bytes, 1.0)
        return self.approximate or (counts and near)


def compare(
    model: Model, layout: Layout, recorded: Iterable[WireRow], expected: Iterable[WireRow]
) -> tuple[Comparison, ...]:
    """One line an axis and kind of collective, in the order of `expected`, then what nobody expected.

    Small rows (counters, losses) are left out. Axes with the same ranks are one: they may be one process group.
    """
    found, wanted = _merged(model, layout, recorded), _merged(model, layout, expected)
    lines = []
    for key in dict.fromkeys((*wanted, *found)):
        here, there = found.get(key, []), wanted.get(key, [])
        counted = all(row.count for row in there)
        lines.append(
            Comparison(
                *key,
                sum(row.count for row in here),
                sum(row.bytes for row in here),
                sum(row.count for row in there) if counted else 0,
                sum(row.bytes for row in there),
                any(row.approximate for row in there),
            )
        )
    return tuple(lines)


def shared_axis(model: Model, layout: Layout, axis: str) -> str:
    """The name of an axis among all that have its ranks; an axis of the mesh that no layout has stays as it is."""
    if axis == KV_COPIES:
        return "tensor" if kv_copies(model, layout) == layout.tensor else axis
    if axis not in ORDER:
        return axis
    ranks = axis_ranks(layout, axis)
    return next(one for one in ORDER if axis_ranks(layout, one) == ranks)


def _merged(model: Model, layout: Layout, rows: Iterable[WireRow]) -> dict[tuple[str, str], list[WireRow]]:
    found: dict[tuple[str, str], list[WireRow]] = {}
    for row in rows:
        if not row.small:
            found.setdefault((shared_axis(model, layout, row.axis), row.collective), []).append(row)
    return found
