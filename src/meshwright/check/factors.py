"""Which degree or count of a layout a ratio is."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    names = [name for name in values[0] if _is(ratios, [v[name] for v in values])]
    inverse = [name for name in values[0] if _is([1 / r if r else 0 for r in ratios], [v[name] for v in values])]
    if experts and "expert degree" in (*names, *inverse):
        return "expert degree" if "expert degree" in names else "1 / expert degree"
    return " or ".join([*names, *(f"1 / {name}" for name in inverse)])


def _is(ratios: Sequence[float], values: Sequence[int]) -> bool:
    close = all(math.isclose(ratio, value, rel_tol=CLOSE) for ratio, value in zip(ratios, values, strict=True))
    return close and any(value > 1 for value in values)


def factors(layout: Layout, case: Case, target_tokens: int) -> dict[str, int]:
    """What a gradient is wrong by when it is summed, averaged or divided once too often or too rarely.

    Products only where they are no single degree.
    """
    micro = case.global_batch // (layout.data * layout.micro_batch)
    sums = layout.data * layout.context
    both = {"replicas": layout.replicate, "shards": layout.shard} if min(layout.replicate, layout.shard) > 1 else {}
    if min(layout.data, layout.context) > 1:
        both["data × context ranks"] = sums
    degrees = {
        "data-parallel ranks": layout.data,
        "tensor degree": layout.tensor,
        "context degree": layout.context,
        "pipeline degree": layout.pipeline,
        "expert degree": layout.expert,
    }
    if layout.devices not in (*degrees.values(), sums):
        both["world size"] = layout.devices
    return {
        **degrees,
        **both,
        "micro-batches": micro,
        "sequences a micro-batch": layout.micro_batch,
        "data-parallel ranks × micro-batches": layout.data * micro if min(layout.data, micro) > 1 else 1,
        "target tokens of the step": target_tokens,
        "tokens of the step": case.global_batch * case.seq_len,
    }
