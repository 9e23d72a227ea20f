"""Space: every layout worth a price on a number of devices, as columns, one pipeline schedule a chunk.

Each layout appears once: what an axis of one rank leaves without effect (a kind of context parallelism, sequence
parallelism, a schedule, an unshared shard) keeps its default. Degrees are divisors of the number of devices; whether a
layout is legal is for `spec.rules` to say. Left out without a look: more tensor ranks than heads, more stages than
layers, context ranks with fewer than MIN_TOKENS tokens, and stages a rank beyond the fewest for their layers a stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import CONTEXT_KINDS, RECOMPUTE, SCHEDULES, V_SCHEDULES
from meshwright.spec.model import Model
from meshwright.spec.rules.rule import divisors
from meshwright.spec.workload import Workload

MIN_TOKENS = 256
"""Tokens of a sequence on one context rank: with fewer, attention is all communication."""
CHUNK_ROWS = 1 << 15
"""Layouts priced at once: their columns stay in the processor's cache."""

_ONE_STAGE = ("gpipe", "1f1b")
_ALONE = "1f1b"
"""The schedule that stands for no pipeline."""
_VARIED = (
    "replicate", "shard", "zero_stage", "offload_optimizer", "offload_parameters", "context", "context_kind", "tensor",
    "sequence_parallel", "expert", "pipeline", "virtual_stages", "micro_batch", "recompute",
)  # fmt: skip
"""Fields that differ within a chunk; the others are one number."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The values of the degrees that the space is made of."""

    tensor: tuple[int, ...]
    context: tuple[int, ...]
    pipeline: tuple[int, ...]
    expert: tuple[int, ...]

    def shapes(self, devices: int) -> Iterator[tuple[int, int, int, int]]:
        """Tensor, context, pipeline and expert degrees that the devices allow."""
        for tensor, context, pipeline, expert in product(self.tensor, self.context, self.pipeline, self.expert):
            stage = tensor * context * pipeline
            if devices % stage == 0 and devices // pipeline % expert == 0:
                yield tensor, context, pipeline, expert


def axes(model: Model, workload: Workload, devices: int) -> Axes:
    """The degrees to try on so many devices."""
    ways = divisors(devices)
    experts = model.experts.count if model.experts is not None else 1
    return Axes(
        tensor=tuple(d for d in ways if d <= model.heads),
        context=tuple(d for d in ways if d == 1 or workload.seq_len // d >= MIN_TOKENS),
        pipeline=tuple(d for d in ways if d <= model.layers),
        expert=tuple(d for d in divisors(experts) if devices % d == 0),
    )


def chunks(model: Model, workload: Workload, devices: int, *, offload: bool = False) -> Iterator[LayoutColumns]:
    """The space in pieces of about CHUNK_ROWS rows; `schedule` is one number in each."""
    degrees = axes(model, workload, devices)
    for schedule in SCHEDULES:
        waiting: list[np.ndarray] = []
        rows = 0
        for shape in degrees.shapes(devices):
            block = _block(model, workload, devices, shape, schedule, offload)
            waiting.append(block)
            rows += block.shape[1]
            if rows >= CHUNK_ROWS:
                yield from _split(np.concatenate(waiting, axis=1), schedule)
                waiting, rows = [], 0
        if rows:
            yield from _split(np.concatenate(waiting, axis=1), schedule)


def virtual_stages(schedule: str, layers: int, pipeline: int) -> tuple[int, ...]:
    """Stages a rank to try: for each number of layers a stage, the fewest stages that lead to it."""
    if pipeline == 1:
        return (1,) if schedule == _ALONE else ()
    most = layers // pipeline
    if schedule in _ONE_STAGE:
        return (1,)
    if schedule in V_SCHEDULES:
        return (2,) if most >= 2 else ()
    least = 1 if schedule == "interleavedzerobubble" else 2
    found = {-(-layers // (pipeline * per_stage)) for per_stage in range(1, most + 1)}
    return tuple(sorted(v for v in found if least <= v <= most))


def shardings(data: int, context: int, offload: bool) -> list[tuple[int, int, int, int, int]]:
    """Replicas, shards, ZeRO stage, optimizer and parameters on the host, for so many data ranks.

    One data rank has states to share only with context ranks, or with the host.
    """
    found = [(data, 1, 0, 0, 0)]
    for shard in divisors(data):
        kept = [(0, 0)] if shard > 1 or (data == 1 and context > 1) else []
        moved = [(1, 0), (1, 1)] if offload and (shard > 1 or data == 1) else []
        found += [
            (data // shard, shard, stage, optimizer, parameters)
            for stage in (1, 2, 3)
            for optimizer, parameters in (*kept, *moved)
            if not parameters or stage == 3
        ]
    return found


def micro_batches(global_batch: int, data: int) -> tuple[int, ...]:
    """Micro-batch sizes that use the batch up; one where the ranks do not divide the batch, for the rules to refuse."""
    return divisors(global_batch // data) if global_batch % data == 0 else (1,)


def _block(
    model: Model, workload: Workload, devices: int, shape: tuple[int, int, int, int], schedule: str, offload: bool
) -> np.ndarray:
    """All layouts of one shape and schedule: an array with one row a field of _VARIED."""
    tensor, context, pipeline, expert = shape
    data = devices // (tensor * context * pipeline)
    stages = virtual_stages(schedule, model.layers, pipeline)
    shards = np.array(shardings(data, context, offload)).T
    kinds = np.arange(len(CONTEXT_KINDS) if context > 1 else 1)
    sequence = np.array([1, 0] if tensor > 1 else [1])
    sizes = np.array(micro_batches(workload.global_batch, data))
    kept = np.arange(len(RECOMPUTE))
    counts = (len(stages), shards.shape[1], len(kinds), len(sequence), len(sizes), len(kept))
    at = np.unravel_index(np.arange(int(np.prod(counts))), counts)
    n = at[0].size
    column = dict(zip(_VARIED[:5], shards[:, at[1]], strict=True)) | {
        "context": np.full(n, context),
        "context_kind": kinds[at[2]],
        "tensor": np.full(n, tensor),
        "sequence_parallel": sequence[at[3]],
        "expert": np.full(n, expert),
        "pipeline": np.full(n, pipeline),
        "virtual_stages": np.array(stages, dtype=np.int64)[at[0]],
        "micro_batch": sizes[at[4]],
        "recompute": kept[at[5]],
    }
    return np.stack([column[name] for name in _VARIED])


def _split(block: np.ndarray, schedule: str) -> Iterator[LayoutColumns]:
    """Columns of at most CHUNK_ROWS rows."""
    for start in range(0, block.shape[1], CHUNK_ROWS):
        piece = block[:, start : start + CHUNK_ROWS]
        yield LayoutColumns(
            **dict(zip(_VARIED, piece, strict=True)),
            schedule=SCHEDULES.index(schedule),
            offload_nvme=0,
            quantized_weights=0,
            quantized_gradients=0,
            secondary_shard=0,
            servers=0,
            staleness=0,
        )
