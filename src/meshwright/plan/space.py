"""Space: every layout worth a price on a number of devices, as columns, one pipeline schedule a chunk.

Each layout appears once: what an axis of one rank leaves without effect (a kind of context parallelism, sequence
parallelism, a schedule, an unshared shard) keeps its default. Degrees are divisors of the number of devices; whether a
layout is legal is for `spec.rules` to say. Left out without a look: tensor ranks beyond the heads or two nodes, more
stages than layers, context ranks with fewer than MIN_TOKENS tokens, micro-batches with more than MAX_TOKENS, stages a
rank beyond the fewest for their number of layers, and replicas of ZeRO-1 and ZeRO-2 groups other than the largest that
a node holds (ZeRO-3's are all there). Beside expert parallelism sequence parallelism is always on, as Megatron-LM
demands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import CONTEXT_KINDS, RECOMPUTE, SCHEDULES, V_SCHEDULES
from meshwright.spec.model import Model
from meshwright.spec.rules.rule import divisors
from meshwright.spec.workload import Workload

MIN_TOKENS = 512
"""Tokens of a sequence on one context rank: with fewer, attention is all communication."""
MAX_TOKENS = 1 << 16
"""Tokens of a micro-batch on one rank, where it has more than one sequence: no kernel is faster with more."""
TENSOR_NODES = 2
"""Nodes that a tensor group may span: it only gets slower from there."""
CHUNK_ROWS = 1 << 14
"""Layouts priced at once: their columns stay in the processor's cache."""
ALONE_ROWS = 1 << 12
"""From so many layouts on, those of one shape are priced by themselves, with its degrees as plain numbers."""

NO_PIPELINE = "1f1b"
"""The schedule that stands for no pipeline."""
_ONE_STAGE = ("gpipe", "1f1b")
SHARDING = ("replicate", "shard", "zero_stage", "offload_optimizer", "offload_parameters")
"""What data-parallel ranks share."""
DEGREES = ("tensor", "context", "pipeline", "expert")
"""What a shape fixes."""
_FREE = ("virtual_stages", "context_kind", "sequence_parallel", "micro_batch", "recompute")
_VARIED = (*DEGREES, *SHARDING, *_FREE)
FIXED = {
    "offload_nvme": 0,
    "quantized_weights": 0,
    "quantized_gradients": 0,
    "secondary_shard": 0,
    "servers": 0,
    "staleness": 0,
}


@dataclass(frozen=True, slots=True)
class Axes:
    """The values of the degrees that the space is made of."""

    tensor: tuple[int, ...]
    context: tuple[int, ...]
    pipeline: tuple[int, ...]
    expert: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Degrees that a device's work depends on, and all ways to share states among what ranks are left."""

    tensor: int
    context: int
    pipeline: int
    expert: int
    data: int
    shardings: np.ndarray
    """One row a field of SHARDING, one column a way."""

    @property
    def ways(self) -> int:
        """How many ways there are."""
        return int(self.shardings.shape[1])


def axes(model: Model, cluster: Cluster, workload: Workload, devices: int) -> Axes:
    """The degrees to try on so many devices of the cluster."""
    ways = divisors(devices)
    experts = model.experts.count if model.experts is not None else 1
    widest = min(model.heads, TENSOR_NODES * cluster.devices_per_node)
    return Axes(
        tensor=tuple(d for d in ways if d <= widest),
        context=tuple(d for d in ways if d == 1 or workload.seq_len // d >= MIN_TOKENS),
        pipeline=tuple(d for d in ways if d <= model.layers),
        expert=tuple(d for d in divisors(experts) if devices % d == 0),
    )


def shapes(degrees: Axes, cluster: Cluster, devices: int, *, offload: bool = False) -> list[Shape]:
    """Every combination of degrees that uses all of the devices."""
    found = []
    for tensor, context, pipeline, expert in product(degrees.tensor, degrees.context, degrees.pipeline, degrees.expert):
        data, rest = divmod(devices, tensor * context * pipeline)
        if rest == 0 and devices // pipeline % expert == 0:
            in_node = max(cluster.devices_per_node // (tensor * context), 1)
            ways = np.array(shardings(data, context, in_node, offload=offload), dtype=np.int64).T
            found.append(Shape(tensor, context, pipeline, expert, data, ways))
    return found


def shardings(data: int, context: int, in_node: int, *, offload: bool) -> list[tuple[int, int, int, int, int]]:
    """Replicas, shards, ZeRO stage, optimizer and parameters on the host, for so many data ranks.

    `in_node` of them have their neighbours in one node. One data rank has states to share only with context ranks, or
    with the host.
    """
    ways = divisors(data)
    some = {max(d for d in ways if d <= in_node), data}
    found = [(data, 1, 0, 0, 0)]
    for shard in ways:
        kept = [(0, 0)] if shard > 1 or (data == 1 and context > 1) else []
        moved = [(1, 0), (1, 1)] if offload and (shard > 1 or data == 1) else []
        found += [
            (data // shard, shard, stage, optimizer, parameters)
            for stage in (1, 2, 3)
            for optimizer, parameters in (*kept, *moved)
            if stage == 3 or (shard in some and not parameters)
        ]
    return found


def virtual_stages(schedule: str, layers: int, pipeline: int) -> tuple[int, ...]:
    """Stages a rank to try: for each number of layers a stage, the fewest stages that lead to it."""
    if pipeline == 1:
        return (1,) if schedule == NO_PIPELINE else ()
    most = layers // pipeline
    if schedule in _ONE_STAGE:
        return (1,)
    if schedule in V_SCHEDULES:
        return (2,) if most >= 2 else ()
    least = 1 if schedule == "interleavedzerobubble" else 2
    found = {-(-layers // (pipeline * per_stage)) for per_stage in range(1, most + 1)}
    return tuple(sorted(v for v in found if least <= v <= most))


def micro_batches(workload: Workload, data: int, context: int) -> tuple[int, ...]:
    """Micro-batch sizes that use the batch up; one where the ranks do not divide the batch, for the rules to refuse."""
    if workload.global_batch % data:
        return (1,)
    most = max(MAX_TOKENS * context // workload.seq_len, 1)
    return tuple(size for size in divisors(workload.global_batch // data) if size <= most)


def variants(model: Model, workload: Workload, shape: Shape) -> int:
    """Layouts of the shape for each of its shardings."""
    return sum(int(np.prod(_counts(_inner(model, workload, shape, schedule)))) for schedule in SCHEDULES)


def chunks(model: Model, workload: Workload, wanted: Iterable[Shape]) -> Iterator[LayoutColumns]:
    """All layouts of these shapes in pieces of about CHUNK_ROWS rows; `schedule` is one number in each."""
    wanted = tuple(wanted)
    for schedule in SCHEDULES:
        waiting: list[np.ndarray] = []
        for shape in wanted:
            block = _block(model, workload, shape, schedule)
            if block.shape[1] >= ALONE_ROWS:
                yield from _split(block, schedule, {name: getattr(shape, name) for name in DEGREES})
                continue
            waiting.append(block)
            if sum(block.shape[1] for block in waiting) >= CHUNK_ROWS:
                yield from _split(np.concatenate(waiting, axis=1), schedule)
                waiting = []
        if waiting:
            yield from _split(np.concatenate(waiting, axis=1), schedule)


def _inner(model: Model, workload: Workload, shape: Shape, schedule: str) -> dict[str, np.ndarray]:
    """The values of each axis that is free once shape and schedule are chosen."""
    values = (
        virtual_stages(schedule, model.layers, shape.pipeline),
        range(len(CONTEXT_KINDS) if shape.context > 1 else 1),
        (1, 0) if shape.tensor > 1 and shape.expert == 1 else (1,),
        micro_batches(workload, shape.data, shape.context),
        range(len(RECOMPUTE)),
    )
    return {name: np.array(tuple(listed), dtype=np.int64) for name, listed in zip(_FREE, values, strict=True)}


def _counts(inner: dict[str, np.ndarray]) -> tuple[int, ...]:
    return tuple(values.size for values in inner.values())


def _block(model: Model, workload: Workload, shape: Shape, schedule: str) -> np.ndarray:
    """All layouts of one shape and schedule: an array with one row a field of _VARIED."""
    inner = _inner(model, workload, shape, schedule)
    counts = (shape.ways, *_counts(inner))
    block = np.empty((len(_VARIED), int(np.prod(counts))), dtype=np.int64)
    grid = block.reshape(len(_VARIED), *counts)
    for name in DEGREES:
        grid[_VARIED.index(name)] = getattr(shape, name)
    for name, ways in zip(SHARDING, shape.shardings, strict=True):
        grid[_VARIED.index(name)] = ways.reshape(-1, *[1] * len(inner))
    for axis, (name, values) in enumerate(inner.items(), start=1):
        grid[_VARIED.index(name)] = values.reshape([-1 if at == axis else 1 for at in range(len(counts))])
    return block


def _split(block: np.ndarray, schedule: str, plain: Mapping[str, int] | None = None) -> Iterator[LayoutColumns]:
    """Columns of at most CHUNK_ROWS rows; fields in `plain` are the same in all of them."""
    if not block.shape[1]:
        return
    for start in range(0, block.shape[1], CHUNK_ROWS):
        columns: dict[str, Any] = dict(zip(_VARIED, block[:, start : start + CHUNK_ROWS], strict=True))
        yield LayoutColumns(**(columns | dict(plain or {})), schedule=SCHEDULES.index(schedule), **FIXED)
