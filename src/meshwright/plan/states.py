"""States: ways to share parameters, gradients and optimizer states that overflow the device before any activation.

All micro-batches, schedules and recomputations of such a way are decided at once: none fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.memory import Peak, peak_memory
from meshwright.plan.question import Question
from meshwright.plan.space import DEGREES, FIXED, NO_PIPELINE, SHARDING, Shape, axes, shapes, variants
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import RECOMPUTE, SCHEDULES, V_SCHEDULES, Layout
from meshwright.spec.rules import legal_mask


@dataclass(frozen=True, slots=True)
class Overflow:
    """Ways to share states that fill the device by themselves."""

    columns: LayoutColumns
    """Of each its leanest layout: one stage a rank, whole recomputation, micro-batches of one sequence."""
    reserved: np.ndarray
    """Bytes that this layout needs."""
    layouts: np.ndarray
    """How many layouts each stands for."""


def split_by_states(question: Question, shapes: Sequence[Shape]) -> tuple[list[Shape], Overflow]:
    """The shapes with the shardings whose states leave room, and the others."""
    q = question
    plain = _plain(shapes)
    legal, _ = legal_mask(q.model, q.cluster, q.workload, plain, runtime=q.runtime, spare=q.spare)
    peak = peak_memory(q.model, q.cluster, q.workload, plain, q.software)
    folded = replace(plain, schedule=SCHEDULES.index(V_SCHEDULES[0]), virtual_stages=2)
    in_a_v = peak_memory(q.model, q.cluster, q.workload, folded, q.software)
    held = np.minimum(_states(peak), _states(in_a_v))
    if q.software.balanced_by_cost:  # a cut by cost depends on the number of stages: nothing is decided for all
        held = 0.0 * held
    # Illegal ones stay in the space: the rules say what is wrong with them.
    over = legal & (held > q.cluster.device.memory_bytes)
    sizes = [shape.ways for shape in shapes]
    parts = np.split(over, np.cumsum(sizes)[:-1])
    left = [replace(shape, shardings=shape.shardings[:, ~part]) for shape, part in zip(shapes, parts, strict=True)]
    layouts = np.repeat([variants(q.model, q.workload, shape) for shape in shapes], sizes)
    return [shape for shape in left if shape.ways], Overflow(plain.take(over), peak.reserved[over], layouts[over])


def leanest(question: Question) -> tuple[Layout, float] | None:
    """The legal layout that needs the fewest bytes of a device, and those bytes; None where none is legal.

    Looked for among one layout for each way to share states, as `Overflow` has them. Layouts for whose states the
    hosts lack the memory do not count.
    """
    q = question
    plain = _plain(shapes(axes(q.model, q.cluster, q.workload, q.devices), q.cluster, q.devices, offload=q.offload))
    legal, _ = legal_mask(q.model, q.cluster, q.workload, plain, runtime=q.runtime, spare=q.spare)
    peak = peak_memory(q.model, q.cluster, q.workload, plain, q.software)
    need = np.where(legal & (peak.host <= q.cluster.host_memory_bytes), peak.reserved, np.inf)
    index = int(np.argmin(need))
    return (plain.row(index), float(need[index])) if np.isfinite(need[index]) else None


def _plain(shapes: Sequence[Shape]) -> LayoutColumns:
    """One layout for each way to share states."""
    sizes = [shape.ways for shape in shapes]
    degrees = {name: np.repeat([getattr(shape, name) for shape in shapes], sizes) for name in DEGREES}
    shared = dict(zip(SHARDING, np.concatenate([shape.shardings for shape in shapes], axis=1), strict=True))
    return LayoutColumns(
        **degrees,
        **shared,
        **FIXED,
        context_kind=0,
        sequence_parallel=1,
        schedule=SCHEDULES.index(NO_PIPELINE),
        virtual_stages=1,
        micro_batch=1,
        recompute=RECOMPUTE.index("full"),
    )


def _states(peak: Peak) -> np.ndarray:
    """Bytes of the states on the rank that has most of them."""
    each = [rank.parameters + rank.gradients + rank.optimizer for rank in peak.ranks.values()]
    return np.asarray(np.max(np.stack(np.broadcast_arrays(*each)), axis=0))
