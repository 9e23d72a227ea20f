"""Losses that are NaN or infinite: the first step, and the ranks that had it before a reduction spread it.

An all-reduce of gradients carries one rank's NaN into every rank's gradient norm of the same step, and into every loss
from the next one on (IEEE 754: a sum with a NaN is NaN). So a rank whose own loss is bad at that step comes before
ranks of which only the norm is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from meshwright.diagnose.configuration.settings import Settings
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.overflow import CHANGE, STREAK
from meshwright.diagnose.metrics.series import Point, Run, runs

RECOVERED = 0.9
"""Of the losses after the first bad one: where so many are finite, one step was bad and training went on."""


def not_a_number(facts: Facts) -> Iterator[Finding]:
    """The first step at which a loss is NaN or infinite, and the ranks that had it first."""
    first = [(point, run) for run in runs(facts) if (point := _first_bad(run)) is not None]
    if not first:
        return
    step = min(point.step for point, _ in first)
    at_step = [(point, run) for point, run in first if point.step == step]
    earliest = [one for one in at_step if _is_bad_loss(one[0])] or at_step
    ranks = sorted({run.rank for _, run in earliest if run.rank is not None})
    apart = len(earliest) < len(list(runs(facts)))
    half = _is_fp16(facts, [run for _, run in earliest])
    what = "loss" if _is_bad_loss(earliest[0][0]) else "gradient norm"
    over = all(_recovers(run, point) for point, run in earliest)
    yield Finding(
        "fp16_overflow", WARNING if over else ERROR, LIKELY if half and not over else POSSIBLE,
        tuple(ranks) if apart else (),
        f"The {what} is NaN or infinite {'at' if over else 'from'} step {step}{_who(ranks) if apart else ''}"
        f"{' and finite again after it' if over else ''}"
        + (": fp16 overflows." if half else "; by a bad sample, a learning rate that is too high, or an operation."),
        tuple(run.evidence(point) for point, run in earliest[:4]),
        "Run the step again from the last checkpoint with torch.autograd.set_detect_anomaly(True).",
        CHANGE if half else _look_at(step, ranks if apart else []),
        min((point.when for point, _ in earliest if point.when is not None), default=None), weight=1,
    )  # fmt: skip


def _who(ranks: Sequence[int]) -> str:
    return f" on rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:16]))}" if ranks else ""


def _look_at(step: int, ranks: Sequence[int]) -> tuple[str, ...]:
    """What may be wrong where nothing says that numbers are small."""
    return (
        f"Look at the data of step {step}{_who(ranks)}: an empty, corrupt or wholly masked sample.",
        "Look at the learning rate and the gradient norms of the steps before: where they rise, lower the rate, warm "
        "up longer and clip gradients.",
        "Find the first operation whose output is not finite (hooks on every module): a division by zero, the log of "
        "0, a row of attention that is masked as a whole.",
        "Go back to the last good checkpoint, and skip the data of this step.",
    )


def _is_fp16(facts: Facts, bad: Sequence[Run]) -> bool:
    """Whether something says fp16: a loss scale, or a setting; a setting of bf16 alone says the opposite."""
    if any(run.scales or any(value not in (0.0, 1.0) for _, value in run.of("loss_scale")) for run in bad):
        return True
    files = facts.of(Settings).of.values()
    return any(one["fp16"].value is True for one in files if "fp16" in one) and not any(
        one["bf16"].value is True for one in files if "bf16" in one
    )


def _is_bad_loss(point: Point) -> bool:
    return not math.isfinite(point.values.get("loss", 0.0))


def _recovers(run: Run, bad: Point) -> bool:
    """Whether nearly all losses after a bad one are finite."""
    later = [one.values["loss"] for one in run.points if one.step > bad.step and "loss" in one.values]
    return len(later) >= STREAK and sum(map(math.isfinite, later)) >= RECOVERED * len(later)


def _first_bad(run: Run) -> Point | None:
    """The first of NaN losses; a gradient norm alone may be infinite on a step that is skipped."""
    for at, point in enumerate(run.points):
        if _is_bad_loss(point):
            return point
        if math.isfinite(point.values.get("grad_norm", 0.0)):
            continue
        norms = [one.values.get("grad_norm", 0.0) for one in run.points[at : at + STREAK]]
        if not any(map(math.isfinite, norms)):
            return point
    return None
