"""The ranks' reports joined: worst errors, coverage of every parameter, replicas that differ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.check.program import AXES, BoxReport, RankReport
from meshwright.cost.wire_row import WireRow

FLOOR = 1e-3
"""A parameter's error is measured against its own largest gradient, but at least this share of the model's: GPT-2's key
biases have no gradient at all (softmax does not see them), and its rounding is not an error."""


@dataclass(frozen=True)
class Comparison:
    """One layout and one accumulation beside the reference."""

    loss: tuple[float, ...]
    loss_error: float
    grad_norm_error: float
    gradient_errors: Mapping[str, float]
    """Relative, worst step, by parameter."""
    update_errors: Mapping[str, float]
    ratios: Mapping[str, float]
    """Gradient over reference in the first step (least squares), by parameter."""
    norm_ratio: float
    """Gradient norm over the reference's in the first step; NaN where ranks disagree."""
    covered: Mapping[str, int]
    """Numbers of each parameter that some rank holds, each counted once."""
    differing_axes: tuple[str, ...]
    """Axes along which ranks hold different numbers for the same box."""
    norms_differ: tuple[str, ...]
    """Axes along which ranks found different gradient norms."""
    traffic: Sequence[Sequence[WireRow]] = field(default_factory=tuple)
    """By rank."""


def compare(
    reports: Sequence[RankReport], known: Mapping[str, object], scales: Mapping[str, Sequence[float]]
) -> Comparison:
    """Join the ranks' reports. `known`: what `write_reference` returned; `scales`: see `reference_scales`."""
    by_name: dict[str, list[BoxReport]] = defaultdict(list)
    for report in reports:
        for box in report.boxes:
            by_name[box.name].append(box)
    loss, norm = known["loss"], known["grad_norm"]
    assert isinstance(loss, list) and isinstance(norm, list)
    gradient_errors = {
        name: _worst(boxes, "gradient_error", scales["gradient/" + name]) for name, boxes in by_name.items()
    }
    update_errors = {name: _worst(boxes, "update_error", scales["update/" + name]) for name, boxes in by_name.items()}
    norms_differ = _axes_apart(reports, lambda r: {"norm": repr(r.grad_norm)})
    return Comparison(
        loss=tuple(reports[0].loss),
        loss_error=max(_relative(a, b) for a, b in zip(reports[0].loss, loss, strict=True)),
        grad_norm_error=max(_relative(a, b) for r in reports for a, b in zip(r.grad_norm, norm, strict=True)),
        gradient_errors=gradient_errors,
        update_errors=update_errors,
        ratios={name: _ratio(boxes) for name, boxes in by_name.items()},
        norm_ratio=math.nan if norms_differ else reports[0].grad_norm[0] / norm[0],
        covered={name: _covered(boxes) for name, boxes in by_name.items()},
        differing_axes=_axes_apart(reports, _digests),
        norms_differ=norms_differ,
        traffic=tuple(tuple(report.traffic) for report in reports),
    )


def _digests(report: RankReport) -> dict[str, str]:
    return {f"{b.name}{b.offset}{b.size}": b.digest for b in report.boxes if all(b.size)}


def _relative(found: float, expected: float) -> float:
    error = abs(found - expected) / max(abs(expected), 1e-300)
    return math.inf if math.isnan(error) else error


def _worst(boxes: Sequence[BoxReport], what: str, scales: Sequence[float]) -> float:
    errors = [error / scale for box in boxes for error, scale in zip(getattr(box, what), scales, strict=True)]
    return max(math.inf if math.isnan(error) else error for error in errors)


def _ratio(boxes: Sequence[BoxReport]) -> float:
    square = sum(box.square[0] / box.copies for box in boxes)
    return sum(box.dot[0] / box.copies for box in boxes) / square if square else 1.0


def _covered(boxes: Sequence[BoxReport]) -> int:
    """Numbers held by some rank: distinct boxes, which do not overlap."""
    return sum(math.prod(size) for _, size in {(box.offset, box.size) for box in boxes})


def _axes_apart(reports: Sequence[RankReport], facts) -> tuple[str, ...]:  # type: ignore[no-untyped-def]
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


def reference_scales(path: str) -> dict[str, list[float]]:
    """By "gradient/NAME" and "update/NAME": in each step, the number that errors are measured against."""
    import torch

    known = torch.load(path, mmap=True, weights_only=True)
    scales: dict[str, list[float]] = {}
    updates = [
        {name: after[name] - before[name] for name in after}
        for before, after in zip(known["parameters"], known["parameters"][1:], strict=False)
    ]
    for kind, steps in (("gradient", known["gradients"]), ("update", updates)):
        for tensors in steps:
            top = max(float(t.abs().max()) for t in tensors.values())
            for name, tensor in tensors.items():
                scales.setdefault(f"{kind}/{name}", []).append(max(float(tensor.abs().max()), FLOOR * top))
    return scales
