"""The ranks' reports joined: worst errors, coverage of every parameter, replicas that differ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from meshwright.check.program import AXES, BoxReport, Difference, RankReport
from meshwright.check.reference import read_reference
from meshwright.cost.wire_row import WireRow

FLOOR = 1e-3
"""A parameter's error is measured against its own largest gradient, but at least this share of the model's: GPT-2's key
biases have no gradient at all (softmax does not see them), and its rounding is not an error."""
STRAIGHT = 1e-8
"""Squared sine of the angle below which numbers are a multiple of others."""


@dataclass(frozen=True)
class Comparison:
    """One layout and one number of micro-batches beside the reference; everything by step where it says so."""

    loss: tuple[float, ...]
    loss_errors: tuple[float, ...]
    """Relative, by step; so are the next."""
    grad_norm_errors: tuple[float, ...]
    norm_ratios: tuple[float, ...]
    """Gradient norm over the reference's; NaN where ranks disagree."""
    gradient_errors: Mapping[str, tuple[float, ...]]
    """By parameter, relative to its largest gradient in the step."""
    gradient_ratios: Mapping[str, tuple[float | None, ...]]
    """Gradient over reference, by parameter; None: no multiple of it. NaN: there was no gradient."""
    update_errors: Mapping[str, tuple[float, ...]]
    update_ratios: Mapping[str, tuple[float | None, ...]]
    covered: Mapping[str, int]
    """Numbers of each parameter that some rank holds, each counted once."""
    other_start: tuple[str, ...]
    """Parameters that are not the reference's before the first step."""
    differing_axes: tuple[str, ...]
    """Axes along which ranks hold different numbers for the same box."""
    norms_differ: tuple[str, ...]
    """Axes along which ranks found different gradient norms."""
    traffic: Sequence[Sequence[WireRow]] = field(default_factory=tuple)
    """By rank."""

    @property
    def loss_error(self) -> float:
        """Of the worst step."""
        return max(self.loss_errors)

    @property
    def grad_norm_error(self) -> float:
        """Of the worst step."""
        return max(self.grad_norm_errors)

    def first_wrong(self, tolerance: float) -> int | None:
        """The first step in which a number is further off than `tolerance`."""
        by_name = (*self.gradient_errors.values(), *self.update_errors.values())
        for step in range(len(self.loss)):
            errors = [self.loss_errors[step], self.grad_norm_errors[step], *(errors[step] for errors in by_name)]
            if max(errors) > tolerance:
                return step
        return None


def compare(
    reports: Sequence[RankReport], known: Mapping[str, Any], scales: Mapping[str, Sequence[float]]
) -> Comparison:
    """Join the ranks' reports. `known`: what `write_reference` returned; `scales`: see `reference_scales`."""
    by_name: dict[str, list[BoxReport]] = defaultdict(list)
    for report in reports:
        for box in report.boxes:
            by_name[box.name].append(box)
    loss, norm = known["loss"], known["grad_norm"]
    norms_differ = _axes_apart(reports, lambda r: {"norm": repr(r.grad_norm)})
    return Comparison(
        loss=tuple(reports[0].loss),
        loss_errors=_relative(reports[0].loss, loss),
        grad_norm_errors=tuple(max(errors) for errors in zip(*(_relative(r.grad_norm, norm) for r in reports))),  # noqa: B905
        norm_ratios=tuple(math.nan if norms_differ else a / b for a, b in zip(reports[0].grad_norm, norm, strict=True)),
        gradient_errors={n: _worst([b.gradient for b in x], scales["gradient/" + n]) for n, x in by_name.items()},
        gradient_ratios={n: _ratios([b.gradient for b in x], [b.copies for b in x]) for n, x in by_name.items()},
        update_errors={n: _worst([b.update for b in x], scales["update/" + n]) for n, x in by_name.items()},
        update_ratios={n: _ratios([b.update for b in x], [b.copies for b in x]) for n, x in by_name.items()},
        covered={name: _covered(boxes) for name, boxes in by_name.items()},
        other_start=tuple(name for name, boxes in by_name.items() if any(box.start != 0 for box in boxes)),
        differing_axes=_axes_apart(reports, _digests),
        norms_differ=norms_differ,
        traffic=tuple(tuple(report.traffic) for report in reports),
    )


def _digests(report: RankReport) -> dict[str, str]:
    return {f"{b.name}{b.offset}{b.size}": b.digest for b in report.boxes if all(b.size)}


def _relative(found: Sequence[float], expected: Sequence[float]) -> tuple[float, ...]:
    errors = [abs(a - b) / max(abs(b), 1e-300) for a, b in zip(found, expected, strict=True)]
    return tuple(math.inf if math.isnan(error) else error for error in errors)


def _worst(boxes: Sequence[Sequence[Difference]], scales: Sequence[float]) -> tuple[float, ...]:
    """By step: the worst of the boxes, over the parameter's scale. NaN is worse than all."""
    return tuple(
        max(math.inf if math.isnan(one.largest) else one.largest for one in of_step) / scale
        for of_step, scale in zip(zip(*boxes, strict=True), scales, strict=True)
    )


def _ratios(boxes: Sequence[Sequence[Difference]], copies: Sequence[int]) -> tuple[float | None, ...]:
    """By step: found over reference, each number counted once however many ranks hold it."""
    ratios: list[float | None] = []
    for of_step in zip(*boxes, strict=True):
        dot, found, reference = (
            sum(getattr(one, what) / n for one, n in zip(of_step, copies, strict=True))
            for what in ("dot", "found", "reference")
        )
        # Cauchy-Schwarz: equal for a multiple of the reference alone.
        multiple = reference > 0 and (found == 0 or 1 - dot * dot / (found * reference) < STRAIGHT)
        ratios.append(math.nan if math.isnan(found) else dot / reference if multiple else None)
    return tuple(ratios)


def _covered(boxes: Sequence[BoxReport]) -> int:
    """Numbers held by some rank: distinct boxes, which do not overlap."""
    return sum(math.prod(size) for _, size in {(box.offset, box.size) for box in boxes})


def _axes_apart(
    reports: Sequence[RankReport], facts: Callable[[RankReport], Mapping[str, str]]
) -> tuple[str, ...]:  # fmt: skip
    """Axes along which two ranks that differ in nothing else disagree on a fact that both state."""
    found = []
    stated = [facts(report) for report in reports]
    for axis in AXES:
        lines: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, report in enumerate(reports):
            lines[tuple(report.place[other] for other in AXES if other != axis)].append(index)
        if any(_disagree([stated[i] for i in line]) for line in lines.values()):
            found.append(axis)
    return tuple(found)


def _disagree(stated: Sequence[Mapping[str, str]]) -> bool:
    first: dict[str, str] = {}
    return any(first.setdefault(key, value) != value for facts in stated for key, value in facts.items())


def reference_scales(path: str, tolerance: float) -> dict[str, list[float]]:
    """By "gradient/NAME" and "update/NAME": in each step, the number that errors are measured against.

    An update is known to the last bits of the parameter it is added to, and no better: an error of two is never
    more than `tolerance`. In float32 that is some ten-thousandths of a step of 1e-3 on a norm's ones.
    """
    known = read_reference(path)
    scales: dict[str, list[float]] = {}
    for tensors in known.gradients:
        top = max(_top(tensor) for tensor in tensors.values())
        for name, tensor in tensors.items():
            scales.setdefault(f"gradient/{name}", []).append(max(_top(tensor), FLOOR * top))
    for before, after in zip(known.parameters, known.parameters[1:], strict=False):
        updates = {name: _top(after[name] - before[name]) for name in after}
        for name, tensor in after.items():
            bits = 2 * torch.finfo(tensor.dtype).eps * _top(tensor)
            floor = max(FLOOR * max(updates.values()), bits / tolerance)
            scales.setdefault(f"update/{name}", []).append(max(updates[name], floor))
    return scales


def _top(tensor: Tensor) -> float:
    return float(tensor.abs().max())
