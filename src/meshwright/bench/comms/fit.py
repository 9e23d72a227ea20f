"""Fit: alpha and beta of each tier, such that `cost.collectives` tells the measured times.

The cost model's time of a collective is linear in three numbers of a tier: the latency of a hop, the seconds a byte,
and the overhead of a collective. Their coefficients are read off the cost model itself, by pricing each message with
one of the three at 1 and the others at 0, so that the fit and the model cannot drift apart.

The sum of |log(told / measured)| is made small (iteratively reweighted least squares), with no number below zero: sizes
from 8 B to 1 GiB count alike, half as much as twice as much, and a size at which the library changes its protocol does
not bend the rest. All-reduce, all-gather and reduce-scatter, of which most layouts' traffic consists, weigh most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.bench.comms.result import TierFit
from meshwright.cost.collectives import (
    Tiers,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    reduce_scatter_seconds,
)
from meshwright.spec.collective import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, INTER, INTRA, REDUCE_SCATTER, SEND, Row
from meshwright.spec.units import binary

Array = NDArray[np.float64]
WEIGHTS = {ALL_REDUCE: 1.0, ALL_GATHER: 1.0, REDUCE_SCATTER: 1.0, ALL_TO_ALL: 0.5, SEND: 0.5}
ROUNDS = 60
TOO_FAST = 1e-2
"""A bandwidth that is 100 times what any message reached was not measured: all were too small."""
SMALLEST = 1e-3
"""Relative errors below this one count alike."""
_PRICE: Mapping[str, Callable[[float, Tiers], Any]] = {
    ALL_REDUCE: all_reduce_seconds,
    ALL_GATHER: all_gather_seconds,
    REDUCE_SCATTER: reduce_scatter_seconds,
    ALL_TO_ALL: all_to_all_seconds,
    SEND: lambda size, t: _send_seconds(size, t),
}
"""Of the operations that the cost model prices; it uses no broadcast."""


def fit_tiers(rows: Sequence[Row], ranks_per_node: int, scatter: float = 1.0) -> tuple[TierFit, ...]:
    """The tiers that `rows` know of, inside a node first; rows without a time are passed over.

    Between nodes, what happens inside them is taken from the first fit, and `bytes_per_s` is of a whole node, which has
    `ranks_per_node` devices: each group gets its share of it. `scatter`: see `Efficiency.scatter`.
    """
    found: list[TierFit] = []
    for tier in (INTRA, INTER):
        known = [row for row in rows if row.line.tier == tier and row.seconds and _is_priced(row)]
        if known:
            found.append(_fit(known, tier, ranks_per_node, found[0] if found else None, scatter))
    return tuple(found)


def priced_seconds(row: Row, fits: Sequence[TierFit], ranks_per_node: int) -> float | None:
    """What the cost model says of a row with these fits; None: it has no formula or no fit for it."""
    by_tier = {one.tier: one for one in fits}
    own = by_tier.get(row.line.tier)
    if own is None or not _is_priced(row):
        return None
    intra = by_tier.get(INTRA)
    seconds = (own.latency_s, 1 / own.bytes_per_s, own.overhead_s)
    return _price(row, own, intra, ranks_per_node, *seconds, own.scatter)


def _is_priced(row: Row) -> bool:
    """Whether the cost model has a formula; it has none of a ring of messages of which some cross nodes."""
    partly = row.operation == SEND and row.line.tier == INTER and row.line.ranks_per_node > 1
    return row.operation in _PRICE and row.line.ranks > 1 and not partly


def _fit(rows: Sequence[Row], tier: str, ranks_per_node: int, intra: TierFit | None, scatter: float) -> TierFit:
    """One tier. Between nodes the overhead inside a node stays, if it is known: the cost model has one for both."""

    def price(row: Row, alpha: float, per_byte: float, overhead: float) -> float:
        return _price(row, None, intra if tier == INTER else None, ranks_per_node, alpha, per_byte, overhead, scatter)

    kept = intra.overhead_s if tier == INTER and intra is not None else None
    measured = np.array([row.seconds for row in rows])
    base = np.array([price(row, 0.0, 0.0, kept or 0.0) for row in rows])
    units = [(1.0, 0.0, kept or 0.0), (0.0, 1.0, kept or 0.0), (0.0, 0.0, 1.0)]
    design = np.array([[price(row, *unit) for unit in units] for row in rows]) - base[:, None]
    if kept is not None:
        design = design[:, :2]
    elif np.linalg.matrix_rank(design / measured[:, None]) < 3:
        design = design[:, :2]  # one operation in one group: a start cannot be told from its hops
    weights = np.array([WEIGHTS[row.operation] for row in rows])
    solved = least_log(design, measured, base, weights)
    alpha, per_byte, overhead = [*solved.tolist(), kept or 0.0][:3]
    reached = max(_link_bytes_per_s(row, ranks_per_node) for row in rows)
    seen = per_byte * reached > TOO_FAST
    per_byte = per_byte if seen else 1 / reached
    told = np.array([price(row, alpha, per_byte, overhead) for row in rows])
    errors = np.abs(told / measured - 1)
    worst = int(errors.argmax())
    names = list(dict.fromkeys(row.operation for row in rows))
    by_name = tuple(
        (name, float(np.median([e for e, row in zip(errors, rows, strict=True) if row.operation == name])))
        for name in names
    )
    where = f"{rows[worst].operation} of {binary(rows[worst].bytes)} on {rows[worst].line.axis}"
    return TierFit(
        tier,
        alpha,
        1 / per_byte,
        overhead,
        len(rows),
        float(np.median(errors)),
        float(errors[worst]),
        where,
        by_name,
        seen,
        scatter,
    )


def _link_bytes_per_s(row: Row, ranks_per_node: int) -> float:
    """What the link carried while a message travelled: a node's, between nodes."""
    groups = ranks_per_node / row.line.ranks_per_node if row.line.tier == INTER else 1.0
    return (row.bus_bytes_per_s or 0.0) * groups


def _price(
    row: Row,
    own: TierFit | None,
    intra: TierFit | None,
    ranks_per_node: int,
    alpha: float,
    per_byte: float,
    overhead: float,
    scatter: float,
) -> float:
    """The cost model's seconds of one message; between nodes with what is known of the links inside."""
    line = row.line
    rate = 1 / per_byte if per_byte else 1e30
    if line.tier == INTRA:
        t = Tiers(line.ranks, line.ranks, rate, rate, alpha, 0.0, overhead, scatter)
    else:
        within = line.ranks_per_node
        link = intra.bytes_per_s if own is not None and intra is not None else 1e30
        near = intra.latency_s if intra else 0.0
        t = Tiers(line.ranks, within, link, rate * within / ranks_per_node, near, alpha, overhead, scatter)
        if row.operation == SEND:
            t = Tiers(line.ranks, 1.0, link, rate / ranks_per_node, 0.0, alpha, overhead)
    return float(_PRICE[row.operation](row.bytes, t))


def _send_seconds(size: float, t: Tiers) -> Any:
    """`cost.collectives.send_seconds` of a message that stays inside its tier."""
    across = np.asarray(t.nodes) > 1
    return np.where(across, size / t.inter + t.alpha_inter, size / t.intra + t.alpha_intra) + t.overhead


def least_log(design: Array, measured: Array, base: Array, weights: Array) -> Array:
    """x from 0 on that makes the weighted sum of |log((base + design x) / measured)| small; a column a number."""
    rows = (weights / measured)[:, None]
    best = _non_negative(design * rows, (measured - base) * rows[:, 0])
    for _ in range(ROUNDS):
        told = np.maximum(base + design @ best, 1e-12)
        # With these the gradient of the squares is that of the logarithms.
        scale = np.sqrt(weights / (told * np.maximum(np.abs(told - measured), SMALLEST * measured)))
        after = _non_negative(design * scale[:, None], (measured - base) * scale)
        if np.allclose(after, best, rtol=1e-9, atol=0):
            break
        best = after
    return best


def _non_negative(design: Array, target: Array) -> Array:
    """Least squares with no number below zero, over every choice of the columns that are not zero: they are few."""
    columns = design.shape[1]
    scale = np.maximum(np.abs(design).max(axis=0), 1e-300)
    best, least = np.zeros(columns), float(target @ target)
    for count in range(1, columns + 1):
        for chosen in map(list, combinations(range(columns), count)):
            part, *_ = np.linalg.lstsq(design[:, chosen] / scale[chosen], target, rcond=None)
            if (part < 0).any():
                continue
            left = design[:, chosen] @ (part / scale[chosen]) - target
            if float(left @ left) < least * (1 - 1e-12):
                least, best = float(left @ left), np.zeros(columns)
                best[chosen] = part / scale[chosen]
    return best
