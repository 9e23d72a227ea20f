"""Legal layouts near one that a cluster cannot hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from meshwright.spec.columns import stack
from meshwright.spec.layout import Layout
from meshwright.spec.rules.rule import Job, Rule, divisors, is_broken, nearest

AXES = ("context", "tensor", "pipeline", "expert")
CHOICES = 4
"""Degrees that are tried on each axis the layout uses."""
SHOWN = 3
MOST_CHANGES = 2


def near_layouts(rules: Sequence[Rule], job: Job, layout: Layout) -> list[Layout]:
    """Layouts on all of the cluster's devices that break none of `rules` and change the fewest axes, nearest first.

    Data-parallel ranks fill what the other axes leave; an axis that the layout does not use stays unused. At most
    SHOWN; none where MOST_CHANGES axes are not enough.
    """
    for changes in range(MOST_CHANGES + 1):
        found = list(dict.fromkeys(_candidates(job, layout, changes)))
        if not found:
            continue
        columns = stack(found)
        broken = np.any([is_broken(rule, job, columns, len(found)) for rule in rules], axis=0)
        legal = [one for one, bad in zip(found, broken, strict=True) if not bad]
        if legal:
            return sorted(legal, key=lambda one: _distance(layout, one))[:SHOWN]
    return []


def refilled(layout: Layout, data: int) -> Layout:
    """The layout with `data` data-parallel ranks: replicas kept if they can be, else dropped."""
    if not layout.zero_stage:
        return replace(layout, replicate=data)
    kept = layout.replicate if data % layout.replicate == 0 else 1
    shard = data // kept
    divides = layout.secondary_shard and shard % layout.secondary_shard == 0
    return replace(layout, replicate=kept, shard=shard, secondary_shard=layout.secondary_shard if divides else 0)


def _candidates(job: Job, layout: Layout, changes: int) -> Iterator[Layout]:
    """Layouts that fill the cluster with another degree on each of `changes` axes."""
    for axes in itertools.combinations(AXES, changes):
        for degrees in itertools.product(*(_degrees(job, layout, axis) for axis in axes)):
            changed = _changed(layout, dict(zip(axes, degrees, strict=True)))
            data, left = divmod(job.cluster.devices, changed.context * changed.tensor * changed.pipeline)
            if data and not left:
                yield refilled(changed, data)


def _changed(layout: Layout, degrees: dict[str, int]) -> Layout:
    changed: Layout = replace(layout, **degrees)  # type: ignore[arg-type]
    if changed.pipeline != layout.pipeline:
        changed = replace(changed, stage_layers=())
        if changed.pipeline == 1:
            changed = replace(changed, schedule="1f1b", virtual_stages=1)
    return changed


def _degrees(job: Job, layout: Layout, axis: str) -> tuple[int, ...]:
    """What a used axis may become: one, and the nearest degrees that divide the devices (or the experts)."""
    asked = getattr(layout, axis)
    if asked == 1:
        return ()
    experts = job.model.experts.count if job.model.experts else 1
    whole = experts if axis == "expert" else job.cluster.devices
    return tuple(sorted({1, *nearest(divisors(whole), asked, CHOICES)} - {asked}))


def _distance(one: Layout, other: Layout) -> tuple[bool, float]:
    """Layouts that give an axis up come last; doublings of degrees count alike."""
    given_up = any(getattr(other, axis) == 1 < getattr(one, axis) for axis in AXES)
    return given_up, sum(abs(math.log2(getattr(one, axis) / getattr(other, axis))) for axis in AXES)
