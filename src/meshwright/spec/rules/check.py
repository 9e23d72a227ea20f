"""The rules applied: to one layout with words, to columns of layouts with masks. One source for both."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, stack
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.rules import batch, context, experts, pipeline, sharding, tensor, training
from meshwright.spec.rules.nearby import near_layouts
from meshwright.spec.rules.rule import RUNTIMES, Job, Note, Rule, is_broken
from meshwright.spec.rules.shape import SHAPE_RULES, check_names
from meshwright.spec.workload import Workload

_KINDS = (batch, tensor, context, experts, pipeline, sharding, training)

RULES: tuple[Rule, ...] = (
    *(rule.for_jobs() for rule in SHAPE_RULES),
    *(rule for kind in _KINDS for rule in kind.RULES),
)
"""In the order in which a layout is tried: what it contradicts in itself first."""
NOTES: tuple[Note, ...] = tuple(
    note for kind in (tensor, context, experts, pipeline, sharding, training) for note in kind.NOTES
)
_TITLES = {"pytorch": "PyTorch", "megatron": "Megatron", "deepspeed": "DeepSpeed"}


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a layout breaks."""

    reason: str
    message: str
    legal: tuple[str, ...]
    refused_by: tuple[str, ...]
    """The runtimes that refuse for it, by their names here."""


def violations(
    model: Model, cluster: Cluster, workload: Workload, layout: Layout, *, spare: bool = False
) -> tuple[Violation, ...]:
    """Every rule that the layout breaks, of any runtime, in order.

    A layout that contradicts itself is not tried further. Raises LayoutError for unknown names in the layout.
    """
    check_names(layout)
    job, row = Job(model, cluster, workload, spare), stack([layout])
    found: list[Violation] = []
    for index, rule in enumerate(RULES):
        if is_broken(rule, job, row, 1)[0]:
            message, legal = rule.explain(job, layout)
            if rule is batch.DEVICES:
                # Only here are all rules known that a layout on all devices has to keep.
                near = near_layouts([r for r in RULES if r.binds(None)], job, layout)
                legal = [str(one) for one in near] or legal
            refused_by = tuple(name for name in RUNTIMES if name in rule.refused_by)
            found.append(Violation(rule.reason, message, tuple(legal), refused_by))
            if index < len(SHAPE_RULES):
                break
    return tuple(found)


def check_layout(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    layout: Layout,
    *,
    runtime: str | None = None,
    spare: bool = False,
) -> tuple[str, ...]:
    """What a person should know of a legal layout: what some runtime refuses, pads, drops or does badly.

    Raises LayoutError when `runtime` ("pytorch", "megatron", "deepspeed") refuses the layout; with None, when every
    runtime does. The message is that of the first broken rule and names the others. `spare`: fewer devices than the
    cluster has will do.
    """
    _check_runtime(runtime)
    found = violations(model, cluster, workload, layout, spare=spare)
    fatal = [v for v in found if _binds(v, runtime)]
    if fatal:
        others = "".join(f" Also: {v.reason}." for v in fatal[1:])
        raise LayoutError(fatal[0].message + others, fatal[0].legal)
    job = Job(model, cluster, workload, spare)
    # Whoever names a runtime does not care for the others' refusals.
    refusals = () if runtime else tuple(f"{_named(v.refused_by)}: {v.message}" for v in found)
    return refusals + tuple(text for note in NOTES if (text := note(job, layout)))


def legal_mask(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    columns: LayoutColumns,
    *,
    runtime: str | None = None,
    spare: bool = False,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Which rows are legal, and for each reason the rows that it rejects first, in the order of the rules.

    `check_layout` raises for exactly the rows that are False, with the same reason first.
    """
    _check_runtime(runtime)
    job, rows = Job(model, cluster, workload, spare), _rows(columns)
    mask, reasons = np.ones(rows, dtype=bool), {}
    for rule in RULES:
        if not rule.binds(runtime):
            continue
        rejected = is_broken(rule, job, columns, rows) & mask
        if rejected.any():
            reasons[rule.reason] = rejected
            mask &= ~rejected
    return mask, reasons


def _rows(columns: LayoutColumns) -> int:
    sizes = [np.size(v) for f in fields(columns) if isinstance(v := getattr(columns, f.name), np.ndarray) and v.ndim]
    return max(sizes, default=1) if 0 not in sizes else 0


def _binds(violation: Violation, runtime: str | None) -> bool:
    return violation.refused_by == RUNTIMES if runtime is None else runtime in violation.refused_by


def _check_runtime(runtime: str | None) -> None:
    if runtime is not None and runtime not in RUNTIMES:
        raise LayoutError(f"Unknown runtime {runtime!r}.", legal=RUNTIMES)


def _named(runtimes: tuple[str, ...]) -> str:
    names = [_TITLES[name] for name in runtimes]
    return f"{' and '.join(names)} {'refuse' if len(names) > 1 else 'refuses'} this"
