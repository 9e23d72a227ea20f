"""Which degree or count of a layout a ratio is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from meshwright.check.case import Case
from meshwright.spec.layout import Layout

CLOSE = 1e-4
"""Relative distance at which a ratio is called by its name."""


def name_factor(
    ratios: Sequence[float], layouts: Sequence[Layout], case: Case, target_tokens: int, *, experts: bool = False
) -> str:
    """ "tensor degree" for ratios that are the tensor degree in each of `layouts`, "1 / tensor degree" for its inverse.

    Names that cannot be told apart are joined by "or"; empty when there is none. `target_tokens`: of the first step.
    `experts`: the ratio is of experts alone, whose degree then comes before others of the same value.
    """
    values = [factors(layout, case, target_tokens) for layout in layouts]
    for group in zip(*values, strict=True):
        names = [name for name in group[0] if _is(ratios, [of_run[name] for of_run in group])]
        inverse = [name for name in group[0] if _is([1 / r if r else 0 for r in ratios], [v[name] for v in group])]
        if experts and "expert degree" in (*names, *inverse):
            return "expert degree" if "expert degree" in names else "1 / expert degree"
        if names or inverse:
            return " or ".join([*names, *(f"1 / {name}" for name in inverse)])
    return ""


def _is(ratios: Sequence[float], values: Sequence[int]) -> bool:
    close = all(math.isclose(ratio, value, rel_tol=CLOSE) for ratio, value in zip(ratios, values, strict=True))
    return close and any(value > 1 for value in values)


def factors(layout: Layout, case: Case, target_tokens: int) -> tuple[Mapping[str, int], ...]:
    """What a gradient is wrong by when it is summed, averaged or divided once too often or too rarely.

    In the order of plausibility: a later group's names are for what no earlier one has.
    """
    micro = case.global_batch // (layout.data * layout.micro_batch)
    hybrid = min(layout.replicate, layout.shard) > 1
    single = {
        "data-parallel ranks": layout.data,
        **({"replicas": layout.replicate, "shards": layout.shard} if hybrid else {}),
        "tensor degree": layout.tensor,
        "context degree": layout.context,
        "pipeline degree": layout.pipeline,
        "expert degree": layout.expert,
        "micro-batches": micro,
        "sequences a micro-batch": layout.micro_batch,
        "target tokens of the step": target_tokens,
        "tokens of the step": case.global_batch * case.seq_len,
    }
    products = {
        "data × context ranks": layout.data * layout.context,
        "data-parallel ranks × micro-batches": layout.data * micro,
    }
    return single, products, {"world size": layout.devices}
