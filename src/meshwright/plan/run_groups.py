"""Groups of published runs that one call of the cost formulas prices: alike but for numbers, which become columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plan.memory_reading import FULLEST, MemoryReading
from meshwright.plan.run_nouns import RunNouns
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, stack
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

NUMBERS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab", "position_rows")
"""Numbers of a dense model that the formulas take as columns; which of its parts exist must be one for a group."""
UNPRICED: dict[str, Any] = {"name": "", "source": "", "warnings": (), "max_positions": 0}
"""Fields of a model on which no price depends."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs that are priced together."""

    rows: NDArray[np.int64]
    """Their positions among the runs that were grouped."""
    model: Model
    """A number in which the runs differ is an array, one element a run."""
    cluster: Cluster
    """The first run's; the others' differ in name and number of nodes, which the layouts say too."""
    workload: Workload
    """As the model: `global_batch` may be an array."""
    layouts: LayoutColumns
    reading: MemoryReading = FULLEST
    """As the runs'."""


def run_groups(runs: Sequence[RunNouns]) -> list[RunGroup]:
    """The runs in as few groups as the formulas allow, by first appearance."""
    members: dict[tuple[object, ...], list[int]] = {}
    for index, run in enumerate(runs):
        members.setdefault(_key(run), []).append(index)
    return [_group([runs[index] for index in rows], rows) for rows in members.values()]


def _key(run: RunNouns) -> tuple[object, ...]:
    c = run.cluster
    links = (c.device.name, c.devices_per_node, c.intra, c.inter, c.nics_per_node)
    numbers: dict[str, Any] = {} if run.model.experts or run.model.latent else dict.fromkeys(NUMBERS, 0)
    workload = replace(run.workload, global_batch=0)
    return (replace(run.model, **UNPRICED, **numbers), *links, workload, run.reading)


def _group(runs: Sequence[RunNouns], rows: list[int]) -> RunGroup:
    first = runs[0]
    numbers: dict[str, Any] = {name: _column([getattr(run.model, name) for run in runs]) for name in NUMBERS}
    batch: Any = _column([run.workload.global_batch for run in runs])
    return RunGroup(
        rows=np.array(rows, dtype=np.int64),
        model=replace(first.model, **numbers),
        cluster=first.cluster,
        workload=replace(first.workload, global_batch=batch),
        layouts=stack([run.layout for run in runs]),
        reading=first.reading,
    )


def _column(values: list[int]) -> int | NDArray[np.int64]:
    return values[0] if len(set(values)) == 1 else np.array(values, dtype=np.int64)
