"""Routing: how many rows go where, which only the router's numbers say.

The host must know it to cut tensors. In a rehearsal there are no numbers: `assume` says what to take instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_imbalance: float | None = None


def traded(counts: Tensor, rows: int) -> tuple[list[int], list[int]]:
    """Rows sent to and got from each expert rank. `counts` [2, ranks]: both, on the device; `rows` are sent in all."""
    if _imbalance is None:
        sent, got = counts.tolist()
        return sent, got
    ranks = counts.shape[1]
    return shares(rows, ranks), shares(round(rows * _imbalance), ranks)


def visits(counts: Tensor, rows: int) -> list[int]:
    """Rows of each expert. `counts` [experts], on the device; they add up to `rows`."""
    if _imbalance is None:
        found: list[int] = counts.tolist()
        return found
    return shares(rows, len(counts))


@contextmanager
def assume(imbalance: float = 1.0) -> Iterator[None]:
    """Inside, no number is read: rows spread evenly, and this rank's experts get `imbalance` times their share."""
    global _imbalance
    _imbalance = imbalance
    try:
        yield
    finally:
        _imbalance = None


def shares(rows: int, parts: int) -> list[int]:
    """`rows` in `parts` whole numbers that differ by one at most."""
    each, left = divmod(rows, parts)
    return [each + (part < left) for part in range(parts)]
