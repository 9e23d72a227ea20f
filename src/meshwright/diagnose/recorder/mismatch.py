"""Collectives in which the members of a group do not do the same thing: by majority, never "rank 0 is right"."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.diagnose.recorder.read import Dump, Entry

ALIKE = ("all_reduce", "allreduce", "broadcast", "reduce", "all_gather", "_all_gather_base", "_reduce_scatter_base")
"""Operations to which every rank brings tensors of the same shape."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One collective."""

    what: str
    """operation, size or dtype."""
    odd: tuple[int, ...]
    """Ranks that do other than most; without a majority, all of them."""
    majority: bool
    entries: tuple[tuple[int, Entry], ...]
    """By rank."""


def first_mismatch(dumps: Sequence[Dump]) -> Mismatch | None:
    """The earliest one over all groups; what comes after it in the same group is a consequence."""
    same: dict[tuple[str, int], list[tuple[int, Entry]]] = defaultdict(list)
    for dump in dumps:
        for entry in dump.entries:
            if entry.peers is None:
                same[entry.group, entry.sequence].append((dump.rank, entry))
    found = [one for entries in same.values() if (one := _mismatch(entries)) is not None]
    return min(found, key=lambda one: min(entry.created_ns for _, entry in one.entries), default=None)


def _mismatch(entries: Sequence[tuple[int, Entry]]) -> Mismatch | None:
    views: dict[str, list[Any]] = {
        "operation": [entry.operation for _, entry in entries],
        "size": [entry.inputs if entry.operation in ALIKE else () for _, entry in entries],
        "dtype": [entry.dtypes for _, entry in entries],
    }
    for what, seen in views.items():
        if seen.count(seen[0]) < len(seen):
            common, often = Counter(seen).most_common(1)[0]
            majority = 2 * often > len(seen)
            ranks = [rank for rank, _ in entries]
            odd = tuple(rank for rank, one in zip(ranks, seen, strict=True) if not majority or one != common)
            return Mismatch(what, odd, majority, tuple(entries))
    return None
