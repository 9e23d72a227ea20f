"""Event: collectives of one kind and size that a rank takes part in, and what it sends in them.

Sizes are of the whole tensor (nccl-tests' convention); what a rank sends follows the lower bounds that rings reach
(Thakur, Rabenseifner and Gropp 2005, section 4): all-gather and reduce-scatter (n-1)/n, all-reduce twice that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from meshwright.cost.wire_row import SMALL, WireRow

_SHARES = {"all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "all-reduce": 2}
"""Of (n-1)/n of the whole tensor, what a rank sends."""


@dataclass(frozen=True, slots=True)
class Event:
    """`count` collectives, each of a tensor of `size` bytes over `ranks` ranks."""

    axis: str
    collective: str
    ranks: int
    size: int
    count: int = 1
    counted: bool = True
    """False: the bytes are right, the number of collectives depends on how they are cut into buckets."""
    approximate: bool = False

    @property
    def sent(self) -> Fraction:
        """Bytes that a rank sends in all of them."""
        if self.collective == "send":
            return Fraction(self.count * self.size)
        return Fraction(_SHARES[self.collective] * (self.ranks - 1) * self.count * self.size, self.ranks)

    def times(self, count: int) -> Event:
        """As many of them."""
        return replace(self, count=self.count * count)


def send(axis: str, size: int, count: int = 1) -> Event:
    """Messages from one rank to another."""
    return Event(axis, "send", 2, size, count)


def times(events: Iterable[Event], count: int) -> list[Event]:
    """Each of the events as many times."""
    return [event.times(count) for event in events]


def rows(events: Iterable[Event]) -> tuple[WireRow, ...]:
    """One row an axis, kind and smallness; groups of one rank and empty tensors send nothing."""
    found: dict[tuple[str, str, bool, bool], list[Event]] = {}
    for event in events:
        if event.ranks > 1 and event.count and event.size:
            key = event.axis, event.collective, event.size <= SMALL, event.approximate
            found.setdefault(key, []).append(event)
    return tuple(
        WireRow(
            axis,
            collective,
            sum(e.count for e in group) if all(e.counted for e in group) else 0,
            float(sum(e.sent for e in group)),
            small,
            approximate,
        )
        for (axis, collective, small, approximate), group in found.items()
    )
