"""Prices: what the cost model says of the shapes, all of them at once, for a device of given rates.

The operations of a kind of shape are built once, as columns with a row a shape; then a fit asks thousands of times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.bench.compute import shapes as of
from meshwright.bench.compute.shapes import MODELS, Shape
from meshwright.cost.compute import BlockSeconds, Rates, backward_seconds, block_seconds, forward_seconds
from meshwright.cost.layer import layer_operations
from meshwright.cost.layer_time import layer_time
from meshwright.cost.operations import ATTENTION, MATMUL, Operation, embedding_block, head_block, sizes
from meshwright.spec.columns import columns_of
from meshwright.spec.implementation import Implementation, load_implementation
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.model_config import read_config
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import Workload, make_workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prices:
    """The cost model on a list of shapes, for one precision and one class of software."""

    precision: str
    implementation: Implementation
    shapes: tuple[Shape, ...]
    _parts: tuple[tuple[Array, Callable[[Rates], Any]], ...]
    """Places of shapes, and what says the seconds of those."""

    def seconds(self, r: Rates) -> Array:
        """What a device of rates `r` takes for each shape."""
        found = np.zeros(len(self.shapes))
        for places, told in self._parts:
            found[places] = told(r)
        return found


def make_prices(shapes: Sequence[Shape], precision: str, implementation: str) -> Prices:
    """Prices for one class of software. Raises WorkloadError with the legal names."""
    software = load_implementation(implementation)
    makers = {
        of.PRODUCT: _products,
        of.ATTEND: _attention,
        of.MOVE: _moves,
        of.LAYER: _layers,
        of.HEAD: _heads,
        of.UPDATE: _updates,
    }
    parts = []
    for kind, make in makers.items():
        places = np.array([at for at, shape in enumerate(shapes) if shape.kind == kind], dtype=np.int64)
        if len(places):
            parts.append((places, make([shapes[at] for at in places], precision, software)))
    return Prices(precision, software, tuple(shapes), tuple(parts))  # type: ignore[arg-type]


def product(shape: Shape, precision: str) -> Operation:
    """A matrix product as the cost model writes one; its two gradients cost the same."""
    m, k, n = shape.sizes
    moved = _element(precision) * (m * k + m * n + k * n)
    return Operation("product", MATMUL, flops=2.0 * m * k * n, bytes=moved, shape=(m, n, k), weight_gradient=1.0)


def attention(shape: Shape, precision: str) -> Operation:
    """Fused causal attention: two products forward, five backward (arXiv:2205.14135)."""
    batch, heads, seq, dim = shape.sizes
    moved = 4 * _element(precision) * batch * heads * seq * dim
    flops = 2.0 * batch * seq * (seq / 2) * heads * 2 * dim
    return Operation("attention", ATTENTION, flops=flops, bytes=moved, input_gradient=2.5)


def moved_bytes(shape: Shape, precision: str) -> float:
    """What an addition of two tensors reads and writes."""
    return 3 * _element(precision) * shape.sizes[0]


Told = Callable[[Rates], Any]


def _products(shapes: Sequence[Shape], precision: str, software: Implementation) -> Told:
    column = _stacked([product(shape, precision) for shape in shapes])
    return lambda r: forward_seconds(column, r)


def _attention(shapes: Sequence[Shape], precision: str, software: Implementation) -> Told:
    column = _stacked([attention(shape, precision) for shape in shapes])
    return lambda r: forward_seconds(column, r) + sum(backward_seconds(column, r))


def _moves(shapes: Sequence[Shape], precision: str, software: Implementation) -> Told:
    moved = np.array([moved_bytes(shape, precision) for shape in shapes])
    return lambda r: moved / r.raw_memory


def _updates(shapes: Sequence[Shape], precision: str, software: Implementation) -> Told:
    """Every state read and written once, times what the software makes of it (`cost.step`)."""
    states = state_bytes(make_workload(1, 1, precision=precision)).total
    moved = np.array([2 * states * shape.sizes[0] * software.optimizer_traffic for shape in shapes])
    return lambda r: moved / r.raw_memory


def _layers(shapes: Sequence[Shape], precision: str, software: Implementation) -> Told:
    columns = _columns([layer_operations(*_job(shape, precision, software))[0] for shape in shapes])
    model, workload, layout = _job(shapes[0], precision, software)
    forward = np.array([shape.part == of.FORWARD for shape in shapes])

    def told(r: Rates) -> Any:
        # Of model and work only what all the shapes share is looked at: no mixture, the same kind of tuning.
        passes = layer_time(model, workload, layout, software, block_seconds(columns, r), [], []).passes
        return np.where(forward, passes.forward, passes.total)

    return told


def _heads(shapes: Sequence[Shape], precision: str, software: Implementation) -> Told:
    jobs = [_job(shape, precision, software) for shape in shapes]
    heads = _columns([head_block(m, w, sizes(w, layout)) for m, w, layout in jobs])
    tables = _columns([embedding_block(m, w, sizes(w, layout)) for m, w, layout in jobs])

    def total(found: BlockSeconds) -> Any:
        return found.passes.total

    return lambda r: total(block_seconds(heads, r)) + total(block_seconds(tables, r))


def _job(shape: Shape, precision: str, software: Implementation) -> tuple[Model, Workload, Any]:
    """Model, work and layout of which a layer or a head is a part."""
    batch, seq = shape.sizes
    workload = make_workload(seq, batch, precision=precision, implementation=software.name)
    return read_config(MODELS[shape.model], shape.model), workload, columns_of(Layout(micro_batch=batch))


def _columns(blocks: Sequence[Sequence[Operation]]) -> list[Operation]:
    """Lists of the same operations as one list whose operations have a row a list."""
    return [_stacked(same) for same in zip(*blocks, strict=True)]


def _stacked(operations: Sequence[Operation]) -> Operation:
    first = operations[0]
    shapes = [operation.shape for operation in operations if operation.shape is not None]
    edges: Any = tuple(np.array(edge, dtype=float) for edge in zip(*shapes, strict=True)) or None
    return replace(
        first,
        flops=np.array([float(operation.flops) for operation in operations]),
        bytes=np.array([float(operation.bytes) for operation in operations]),
        shape=edges,
    )


def _element(precision: str) -> float:
    """Bytes of one number."""
    return 4.0 if precision == "fp32" else 2.0
