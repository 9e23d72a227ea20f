"""Sets of time spans: arrays [n, 2] of begin and end, sorted and disjoint once `union` has seen them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.float64]
NONE: Spans = np.empty((0, 2))


def union(spans: Iterable[tuple[float, float]] | Spans) -> Spans:
    """The moments that lie in any of `spans`, as sorted, disjoint spans. Empty and negative spans are left out."""
    given = np.asarray(spans if isinstance(spans, np.ndarray) else list(spans), dtype=np.float64).reshape(-1, 2)
    given = given[given[:, 1] > given[:, 0]]
    if not len(given):
        return NONE
    given = given[np.argsort(given[:, 0], kind="stable")]
    reached = np.maximum.accumulate(given[:, 1])
    first = np.concatenate(([True], given[1:, 0] > reached[:-1]))
    begins = given[first, 0]
    ends = np.concatenate((reached[np.flatnonzero(first)[1:] - 1], reached[-1:]))
    return np.stack((begins, ends), axis=1)


def total(spans: Spans) -> float:
    """How long disjoint spans are together."""
    return float((spans[:, 1] - spans[:, 0]).sum())


def intersection(a: Spans, b: Spans) -> Spans:
    """The moments in both of two sets of disjoint spans."""
    times = np.concatenate((a[:, 0], b[:, 0], a[:, 1], b[:, 1]))
    steps = np.repeat((1, -1), len(a) + len(b))
    order = np.argsort(times, kind="stable")
    times, inside = times[order], np.cumsum(steps[order])
    begins = np.flatnonzero((inside[:-1] == 2) & (times[1:] > times[:-1]))
    return np.stack((times[begins], times[begins + 1]), axis=1)


def part(spans: Spans, begin: float, end: float) -> Spans:
    """The same as `within`, for a short time of many spans."""
    first, last = np.searchsorted(spans[:, 1], begin, "right"), np.searchsorted(spans[:, 0], end, "left")
    return within(spans[first:last], begin, end)


def within(spans: Spans, begin: float, end: float) -> Spans:
    """The part of disjoint spans between two moments."""
    return union(np.clip(spans, begin, end))


def difference(a: Spans, b: Spans) -> Spans:
    """The moments in `a` and not in `b`; both disjoint."""
    if not len(a):
        return NONE
    begin, end = a[0, 0], a[-1, 1]
    inner = within(b, begin, end)
    edges = np.concatenate(([begin], inner.reshape(-1), [end])).reshape(-1, 2)
    return intersection(a, union(edges))
