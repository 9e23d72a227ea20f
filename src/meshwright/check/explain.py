"""A difference that explains itself, named: which factor, which count, which axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from meshwright.check.case import Case, rows_of
from meshwright.check.merge import Comparison
from meshwright.spec.layout import Layout

CLOSE = 1e-4
"""Relative distance at which a ratio is called by its name."""


def explain(case: Case, layout: Layout, found: Comparison, known: Mapping[str, object], tolerance: float) -> str:
    """What is wrong with a layout that failed, in words; empty when nothing stands out."""
    causes = [
        _missing(found, known),
        _loss_cause(case, layout, found, known, tolerance),
        _norm_cause(found, tolerance),
        _gradient_cause(layout, case, found, tolerance),
        _replica_cause(found),
    ]
    return "; ".join(cause for cause in causes if cause)


def _missing(found: Comparison, known: Mapping[str, object]) -> str:
    shapes = known["shapes"]
    assert isinstance(shapes, dict)
    short = [name for name, shape in shapes.items() if found.covered.get(name, 0) != math.prod(shape)]
    if not short:
        return ""
    lost = sum(math.prod(shapes[name]) - found.covered.get(name, 0) for name in short)
    layers = sorted({int(name.split(".")[1]) for name in short if name.startswith("layers.")})
    where = f"layers {', '.join(map(str, layers))}" if layers else ", ".join(short[:3])
    return f"{lost:,} parameters are on no rank: {where} dropped"


def _loss_cause(
    case: Case, layout: Layout, found: Comparison, known: Mapping[str, object], tolerance: float
) -> str:  # fmt: skip
    if found.loss_error <= tolerance or not found.loss:
        return ""
    loss = known["loss"]
    assert isinstance(loss, list)
    for words, value in _other_means(case, layout, known).items():
        if math.isclose(found.loss[0], value, rel_tol=max(tolerance, 1e-9)):
            return f"the loss is {words}"
    return f"loss × {found.loss[0] / loss[0]:.4g}{_named(found.loss[0] / loss[0], layout, case)}"


def _other_means(case: Case, layout: Layout, known: Mapping[str, object]) -> dict[str, float]:
    """What the first step's loss would be, divided in the ways that released runtimes divided it."""
    sums, counts = known["sums"], known["counts"]
    assert isinstance(sums, list) and isinstance(counts, list)
    micro = [rows for rank in range(layout.data) for rows in rows_of(layout, case, rank)]
    per_rank = case.global_batch // layout.data
    ranks = [slice(i * per_rank, (i + 1) * per_rank) for i in range(layout.data)]

    def mean_of_means(groups: Sequence[slice]) -> float:
        means = [sum(sums[g]) / max(sum(counts[g]), 1) for g in groups]
        return sum(means) / len(means)

    return {
        "the mean of the data ranks' means, not of all target tokens": mean_of_means(ranks),
        "the mean of the micro-batches' means, not of all target tokens": mean_of_means(micro),
        "divided by all tokens, masked ones too": sum(sums) / (case.global_batch * case.seq_len),
    }


def _norm_cause(found: Comparison, tolerance: float) -> str:
    if found.norms_differ:
        axes = " and ".join(found.norms_differ)
        return f"ranks disagree on the gradient norm along {axes}: each clips by its own"
    worst = max(found.gradient_errors.values())
    if found.grad_norm_error > tolerance and worst <= tolerance:
        return f"the gradients agree, their norm is × {found.norm_ratio:.4g}: parts are missing in it or counted twice"
    return ""


def _gradient_cause(layout: Layout, case: Case, found: Comparison, tolerance: float) -> str:
    wrong = {name: found.ratios[name] for name, error in found.gradient_errors.items() if error > tolerance}
    if not wrong:
        return ""
    ratios = list(wrong.values())
    where = "" if len(wrong) == len(found.gradient_errors) else f" of {_pattern(list(wrong))}"
    if all(math.isclose(r, ratios[0], rel_tol=CLOSE) for r in ratios) and not math.isclose(ratios[0], 1, rel_tol=CLOSE):
        return f"gradients{where} × {ratios[0]:.4g}{_named(ratios[0], layout, case)}"
    if any(math.isnan(r) for r in ratios):
        return f"no gradients for {_pattern([n for n, r in wrong.items() if math.isnan(r)])}"
    return f"gradients{where} differ"


def _pattern(names: Sequence[str]) -> str:
    """A few names in one: what they share."""
    shapes = sorted({".".join("*" if part.isdigit() else part for part in name.split(".")) for name in names})
    return ", ".join(shapes[:3]) + (f" and {len(shapes) - 3} more" if len(shapes) > 3 else "")


def _named(ratio: float, layout: Layout, case: Case) -> str:
    """The degree or count that a ratio is."""
    micro = case.global_batch // (layout.data * layout.micro_batch)
    candidates = {
        "world size": layout.devices,
        "data-parallel ranks": layout.data,
        "tensor degree": layout.tensor,
        "context degree": layout.context,
        "expert degree": layout.expert,
        "pipeline degree": layout.pipeline,
        "replicas": layout.replicate,
        "shards": layout.shard,
        "micro-batches": micro,
        "data × context": layout.data * layout.context,
        "sequences a micro-batch": layout.micro_batch,
    }
    same = [name for name, value in candidates.items() if value > 1 and math.isclose(ratio, value, rel_tol=CLOSE)]
    under = [
        f"1 / {name}"
        for name, value in candidates.items()
        if value > 1 and math.isclose(ratio, 1 / value, rel_tol=CLOSE)
    ]
    names = same + under
    return f" = {' or '.join(names)}" if names else ""


def _replica_cause(found: Comparison) -> str:
    if not found.differing_axes:
        return ""
    axes = " and ".join(found.differing_axes)
    return f"copies of one parameter differ along {axes}: gradients are not synchronised there"
