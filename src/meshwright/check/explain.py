"""A difference that explains itself, named: what is missing, which mean was taken, which axis was not summed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from meshwright.check.case import Case, rows_of
from meshwright.check.factors import name_factor
from meshwright.check.merge import Comparison
from meshwright.spec.layout import Layout

CLOSE = 1e-4
"""Relative distance within which ratios are the same."""

Runs = Sequence[tuple[Layout, Comparison]]
"""One layout with its numbers of micro-batches, the fewest first."""


def explain(case: Case, runs: Runs, known: Mapping[str, Any], tolerance: float) -> str:
    """What is wrong with a layout that failed, in words; empty when nothing stands out.

    Looks at the first step that is wrong, as what follows is a consequence. A name for a number must hold in every
    run: what is wrong by the number of micro-batches is right where there is one.
    """
    lost = _missing(runs, known)
    if lost:
        return lost
    other = runs[0][1].other_start
    if other:
        return f"the weights differ before the first step: {_pattern(other, runs[0][1].covered)}"
    firsts = [found.first_wrong(tolerance) for _, found in runs]
    wrong = [step for step in firsts if step is not None]
    step = min(wrong, default=0)
    causes = _causes(case, runs, known, tolerance, step) if wrong else []
    causes += _copies(runs)
    if causes and wrong:
        causes[0] += _when(case, runs, firsts, step)
    return "; ".join(causes)


def _missing(runs: Runs, known: Mapping[str, Any]) -> str:
    shapes = known["shapes"]
    covered = runs[0][1].covered
    short = {name: math.prod(shape) - covered.get(name, 0) for name, shape in shapes.items()}
    lost = {name: count for name, count in short.items() if count > 0}
    twice = {name: count for name, count in short.items() if count < 0}
    if lost:
        return f"{sum(lost.values()):,} parameters are on no rank: {_places(lost, shapes)}"
    if twice:
        return f"the ranks' parts of {_pattern(list(twice), shapes)} overlap"
    return ""


def _places(lost: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Layers of which nothing is left, and parameters of others; parts of what is held in part."""
    whole = {name for name, count in lost.items() if count == math.prod(shapes[name])}
    by_layer: dict[str, list[str]] = defaultdict(list)
    for name in shapes:
        if name.startswith("layers."):
            by_layer[name.split(".")[1]].append(name)
    layers = {layer: names for layer, names in by_layer.items() if whole.issuperset(names)}
    numbers = ", ".join(sorted(layers, key=int))
    found = [f"layer{'s' * (len(layers) > 1)} {numbers} dropped"] if layers else []
    single = whole.difference(*layers.values())
    found += [f"{_pattern(list(single), shapes)} dropped"] if single else []
    split = [name for name in lost if name not in whole]
    return " and ".join([*found, *([f"parts of {_pattern(split, shapes)}"] if split else [])])


def _causes(case: Case, runs: Runs, known: Mapping[str, Any], tolerance: float, step: int) -> list[str]:
    loss, named = _loss(case, runs, known, tolerance, step)
    if named:
        return [loss]  # the gradients are that loss's
    gradients = _ratio_cause("gradients", case, runs, known, tolerance, step)
    norm = _norm(runs, tolerance, step)
    found = [cause for cause in (loss, gradients, norm) if cause]
    return found or [cause for cause in (_ratio_cause("updates", case, runs, known, tolerance, step),) if cause]


def _loss(
    case: Case, runs: Runs, known: Mapping[str, Any], tolerance: float, step: int
) -> tuple[str, bool]:  # fmt: skip
    """What the loss is, and whether that says it all."""
    if all(found.loss_errors[step] <= tolerance for _, found in runs):
        return "", False
    losses = known["loss"]
    if any(math.isnan(found.loss[step]) for _, found in runs):
        return "the loss is not a number", True
    if step == 0:
        found_means = [words for words in _means(case, runs[0][0], known) if _is_mean(words, case, runs, known)]
        if found_means:
            return f"the loss is {' or '.join(found_means)}, not the mean over all target tokens", True
    ratios = [found.loss[step] / losses[step] for _, found in runs]
    named = _times(ratios, case, runs, known)
    worst = max(found.loss_errors[step] for _, found in runs)
    return (f"loss {named}" if "=" in named else f"the loss is off by {worst:.0e}"), False


def _is_mean(words: str, case: Case, runs: Runs, known: Mapping[str, Any]) -> bool:
    return all(
        math.isclose(found.loss[0], _means(case, layout, known)[words], rel_tol=CLOSE * 1e-2) for layout, found in runs
    )


def _means(case: Case, layout: Layout, known: Mapping[str, Any]) -> dict[str, float]:
    """What the first step's loss would be, divided in the ways that released runtimes divided it."""
    sums, counts = known["sums"], known["counts"]
    micro = [rows for rank in range(layout.data) for rows in rows_of(layout, case, rank)]
    per_rank = case.global_batch // layout.data
    ranks = [slice(i * per_rank, (i + 1) * per_rank) for i in range(layout.data)]

    def mean_of_means(groups: Sequence[slice]) -> float:
        means: list[float] = [sum(sums[g]) / max(sum(counts[g]), 1) for g in groups]
        return sum(means) / len(means)

    return {
        "the mean of the data ranks' means": mean_of_means(ranks),
        "the mean of the micro-batches' means": mean_of_means(micro),
        "the mean over all tokens, masked ones too": sum(sums) / (case.global_batch * case.seq_len),
    }


def _norm(runs: Runs, tolerance: float, step: int) -> str:
    axes = list(dict.fromkeys(axis for _, found in runs for axis in found.norms_differ))
    if axes:
        return f"ranks disagree on the gradient norm along {' and '.join(axes)}: each clips by its own"
    for _, found in runs:
        right = all(errors[step] <= tolerance for errors in found.gradient_errors.values())
        if right and found.grad_norm_errors[step] > tolerance:
            return (
                f"the gradients agree, their norm is × {found.norm_ratios[step]:.4g}: "
                "parts are missing in it or counted twice"
            )
    return ""


def _ratio_cause(
    what: str, case: Case, runs: Runs, known: Mapping[str, Any], tolerance: float, step: int
) -> str:  # fmt: skip
    """What the wrong gradients or updates of one step have in common."""
    names, ratios = [], []
    for _, found in runs:
        errors = found.gradient_errors if what == "gradients" else found.update_errors
        names += [name for name, of_steps in errors.items() if of_steps[step] > tolerance]
    wrong = list(dict.fromkeys(names))
    if not wrong:
        return ""
    for _, found in runs:
        of_run = found.gradient_ratios if what == "gradients" else found.update_ratios
        ratios.append([of_run[name][step] for name in wrong])
    where = "" if len(wrong) == len(runs[0][1].covered) else f" of {_pattern(wrong, runs[0][1].covered)}"
    none = [n for run in ratios for n, r in zip(wrong, run, strict=True) if r is not None and math.isnan(r)]
    if none:
        return f"no {what} for {_pattern(none, runs[0][1].covered)}"
    if all(ratio == 0 for ratio in ratios[-1]):
        still = ": the optimizer holds other tensors than the model" if what == "updates" and not where else ""
        return f"{what}{where} are zero{still}"
    firsts = [run[0] for run in ratios if _alike(run)]
    if len(firsts) == len(runs) and any(not math.isclose(ratio, 1, rel_tol=CLOSE) for ratio in firsts):
        return f"{what}{where} {_times(firsts, case, runs, known, experts=all('.experts.' in n for n in wrong))}"
    return f"{what}{where} differ"


def _alike(ratios: Sequence[float | None]) -> TypeGuard[Sequence[float]]:
    first = ratios[0]
    return first is not None and all(r is not None and math.isclose(r, first, rel_tol=CLOSE) for r in ratios)


def _times(
    ratios: Sequence[float], case: Case, runs: Runs, known: Mapping[str, Any], *, experts: bool = False
) -> str:  # fmt: skip
    counts = known["counts"]
    name = name_factor(ratios, [layout for layout, _ in runs], case, sum(counts), experts=experts)
    return f"× {ratios[-1]:.4g}" + (f" = {name}" if name else "")


def _pattern(names: Sequence[str], every: Iterable[str]) -> str:
    """Some of `every` name in short: numbers are `*`, and so is a module's last part where all of it is named."""
    wrong = {_starred(name) for name in names}
    whole: dict[str, set[str]] = defaultdict(set)
    for name in map(_starred, every):
        whole[name.rpartition(".")[0]].add(name)
    short = []
    for parent in sorted({name.rpartition(".")[0] for name in wrong}):
        own = {name for name in wrong if name.rpartition(".")[0] == parent}
        short += [f"{parent}.*"] if len(own) > 1 and own == whole[parent] else sorted(own)
    return ", ".join(short[:3]) + (f" and {len(short) - 3} more" if len(short) > 3 else "")


def _starred(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _when(case: Case, runs: Runs, firsts: Sequence[int | None], step: int) -> str:
    """Where it shows, when that is not everywhere."""
    words = f" from step {step + 1} on" if step else ""
    if None in firsts:
        counts = [case.global_batch // (layout.data * layout.micro_batch) for layout, _ in runs]
        right = ", ".join(str(count) for count, first in zip(counts, firsts, strict=True) if first is None)
        bad = ", ".join(str(count) for count, first in zip(counts, firsts, strict=True) if first is not None)
        words += f" with {bad} micro-batches, not with {right}"
    return words


def _copies(runs: Runs) -> list[str]:
    axes = list(dict.fromkeys(axis for _, found in runs for axis in found.differing_axes))
    if not axes:
        return []
    return [f"copies of one parameter differ along {' and '.join(axes)}: gradients are not synchronised there"]
