"""What a rule is: one predicate over columns, and the words for one row that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, columns_of
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

RUNTIMES = ("pytorch", "megatron", "deepspeed")
"""PyTorch's own libraries (FSDP2, DTensor, pipelining 2.13), Megatron-LM, DeepSpeed."""
EVERY = frozenset(RUNTIMES)

Refusal = tuple[str, Sequence[str]]
"""What is wrong with one layout, as a sentence, and the nearest legal values."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a layout has to suit."""

    model: Model
    cluster: Cluster
    workload: Workload
    spare: bool = False
    """Fewer devices than the cluster has will do."""

    def micro_batches(self, columns: LayoutColumns) -> Any:
        """Micro-batches that a data-parallel rank runs in a step (whole ones)."""
        return self.workload.global_batch // (columns.data * columns.micro_batch)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that a layout must not break."""

    reason: str
    """Why a layout is rejected, in words that fit every row."""
    broken: Callable[[Job, LayoutColumns], Any]
    """Of each row, whether it breaks the rule: a bool, or an array of them."""
    explain: Callable[[Job, Layout], Refusal]
    """The refusal of one layout that breaks the rule."""
    refused_by: frozenset[str] = EVERY
    """The runtimes that enforce it; when not every one does, the others run the layout."""

    def binds(self, runtime: str | None) -> bool:
        """Whether the rule refuses a layout for `runtime`; for None, when no runtime takes it."""
        return self.refused_by == EVERY if runtime is None else runtime in self.refused_by


Note = Callable[[Job, Layout], str | None]
"""What a person should know of a legal layout, or None."""


def is_broken(rule: Rule, job: Job, columns: LayoutColumns, rows: int) -> np.ndarray:
    """Of each of `rows` rows, whether it breaks the rule."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.broadcast_to(np.asarray(rule.broken(job, columns), dtype=bool), (rows,))


def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def nearest(candidates: Iterable[int], wanted: int, count: int = 4) -> tuple[int, ...]:
    """The candidates closest to `wanted`, closest first."""
    return tuple(sorted(candidates, key=lambda c: (abs(c - wanted), c))[:count])


def legal_degrees(
    rules: Iterable[Rule], job: Job, layout: Layout, field: str, candidates: Sequence[int]
) -> tuple[int, ...]:
    """Of `candidates` for one of the layout's fields, the nearest that break none of `rules`."""
    columns = replace(columns_of(layout), **{field: np.array(candidates, dtype=np.int64)})
    broken = [is_broken(rule, job, columns, len(candidates)) for rule in rules]
    legal = ~np.any(broken, axis=0)
    return nearest((c for c, ok in zip(candidates, legal, strict=True) if ok), getattr(layout, field))
