"""Fit: the few constants of a device with which the cost model tells the measured times.

Free are the rate of large products, the seconds and the tile that a product loses, the rate of attention, and the rate
of memory. The median-like loss is the mean of |log(told / measured)| of each kind of shape, the kinds weighted by how
much of a step they are. Nelder and Mead's simplex (The Computer Journal 7, 1965) walks in the logarithms: five numbers,
no derivatives, nothing to install.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.bench.compute.prices import Prices, attention, moved_bytes, product
from meshwright.bench.compute.shapes import ATTEND, HEAD, LAYER, MOVE, PRODUCT, UPDATE, Shape
from meshwright.cost.compute import Rates, rates
from meshwright.spec.cluster import Device, Efficiency
from meshwright.spec.workload import make_workload

Array = NDArray[np.float64]
WEIGHTS = {PRODUCT: 1.0, ATTEND: 0.5, MOVE: 0.2, LAYER: 4.0, HEAD: 2.0, UPDATE: 0.5}
"""What a step consists of: layers and head. The kernels by themselves keep the constants what they are called."""
ROUNDS = 150
LEAST_TILE, MOST_TILE = 1e-2, 256.0


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted, for one precision."""

    product_flops: float
    """FLOP/s of large products."""
    overhead_s: float
    tile: float
    attention_flops: float
    """Of the class of software that it is fitted for."""
    memory_bytes_per_s: float

    def array(self) -> Array:
        """Logarithms."""
        values = (self.product_flops, self.overhead_s, self.tile, self.attention_flops, self.memory_bytes_per_s)
        return np.asarray(np.log(np.array(values)))


def fit(seconds: Sequence[float], prices: Prices) -> Constants:
    """The constants with which the prices tell `seconds` best."""
    start = _start(seconds, prices)
    measured = np.log(np.array(seconds))
    kinds = [shape.kind for shape in prices.shapes]
    weights = np.array([WEIGHTS[kind] / kinds.count(kind) for kind in kinds])

    def loss(x: Array) -> float:
        constants = _constants(x)
        told = np.log(told_seconds(constants, prices))
        outside = max(0.0, float(np.log(LEAST_TILE) - x[2]), float(x[2] - np.log(MOST_TILE)))
        return float(weights @ np.abs(told - measured)) + outside

    begun = [replace(start, tile=tile, overhead_s=overhead).array() for tile, overhead in _places(start.overhead_s)]
    best = min((simplex(loss, x, 0.7, ROUNDS) for x in begun), key=loss)
    return _constants(simplex(loss, best, 0.3, 2 * ROUNDS))


def _places(overhead_s: float) -> list[tuple[float, float]]:
    """Tiles and overheads to start from: one walk may end in a valley that is not the deepest."""
    return [(tile, overhead_s * times) for tile in (2.0, 32.0) for times in (1.0, 20.0)]


def told_seconds(constants: Constants, prices: Prices) -> Array:
    """What the cost model says of each shape."""
    return prices.seconds(rates_of(device_of(constants, prices), prices))


def device_of(constants: Constants, prices: Prices, peak: float = 0.0) -> Device:
    """A Device that reaches the constants; its peak is `peak`, or what the fastest of its operations reach."""
    attention = constants.attention_flops / prices.implementation.attention
    peak = max(peak, constants.product_flops, attention)
    efficiency = Efficiency(
        matmul=constants.product_flops / peak,
        matmul_overhead_s=constants.overhead_s,
        matmul_tile=constants.tile,
        misaligned=1.0,
        attention=attention / peak,
        memory=1.0,
    )
    return Device("measured", 1.0, constants.memory_bytes_per_s, {prices.precision: peak}, efficiency)


def rates_of(device: Device, prices: Prices) -> Rates:
    """The rates of a device for the precision and the class of software that the prices are of."""
    workload = make_workload(1, 1, precision=prices.precision, implementation=prices.implementation.name)
    return rates(device, workload, prices.implementation)


def errors_by_kind(
    shapes: Sequence[Shape], seconds: Sequence[float], told: Sequence[float]
) -> tuple[tuple[str, float, float], ...]:
    """Median and worst relative error of each kind."""
    found = []
    for kind in dict.fromkeys(shape.kind for shape in shapes):
        off = [abs(t / s - 1) for shape, s, t in zip(shapes, seconds, told, strict=True) if shape.kind == kind]
        found.append((kind, float(np.median(off)), max(off)))
    return tuple(found)


def _start(seconds: Sequence[float], prices: Prices) -> Constants:
    """From the best that each kind reached by itself."""
    timed, precision = list(zip(prices.shapes, seconds, strict=True)), prices.precision
    products = [float(product(s, precision).flops) / t for s, t in timed if s.kind == PRODUCT]
    attended = [3.5 * float(attention(s, precision).flops) / t for s, t in timed if s.kind == ATTEND]
    moved = [moved_bytes(s, precision) / t for s, t in timed if s.kind == MOVE]
    smallest = min(t for s, t in timed if s.kind == PRODUCT)
    return Constants(max(products), smallest / 2, 4.0, float(np.median(attended)), float(np.median(moved)))


def _constants(x: Array) -> Constants:
    return Constants(*(float(value) for value in np.exp(x)))


def simplex(loss: Callable[[Array], float], start: Array, step: float, rounds: int) -> Array:
    """The best point that Nelder and Mead's method finds from `start` in so many rounds."""
    points: list[Any] = [start, *(start + step * row for row in np.eye(len(start)))]
    values = [loss(point) for point in points]
    for _ in range(rounds):
        order = np.argsort(values)
        points, values = [points[i] for i in order], [values[i] for i in order]
        if values[-1] - values[0] < 1e-7:
            break
        centre = np.mean(points[:-1], axis=0)
        reflected = 2 * centre - points[-1]
        value = loss(reflected)
        if value < values[0]:
            further = 3 * centre - 2 * points[-1]
            far = loss(further)
            points[-1], values[-1] = (further, far) if far < value else (reflected, value)
        elif value < values[-2]:
            points[-1], values[-1] = reflected, value
        else:
            nearer = (centre + (reflected if value < values[-1] else points[-1])) / 2
            near = loss(nearer)
            if near < min(value, values[-1]):
                points[-1], values[-1] = nearer, near
            else:
                points = [points[0], *((point + points[0]) / 2 for point in points[1:])]
                values = [values[0], *(loss(point) for point in points[1:])]
    return np.asarray(points[int(np.argmin(values))])
