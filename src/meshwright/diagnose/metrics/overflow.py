"""fp16 that overflows for good.

A dynamic loss scale looks for its level: single halvings are healthy, and so is a row of them at the start (DeepSpeed
starts at 2^16, Megatron-LM at 2^32). Four in a row later, or a scale at its floor, means that gradients are infinite
or NaN at any scale (research: ymcui/Chinese-LLaMA-Alpaca#534, DeepSpeed#697, fp16/loss_scaler.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.series import Metrics, Pauses, Point, Run, Scale

STREAK = 4
"""Halvings in a row: a scale that is 16 times too high is none that merely grew once too often."""
BETWEEN = 3
"""Steps that may be printed between halvings of one row; a healthy scale has hundreds (it grows after 1000 or 2000)."""
SETTLED = 128.0
"""Healthy scales settle above: else gradients would have to exceed 65504 / 128 (65504: the largest fp16)."""
CHANGE = (
    "Train in bf16 where the GPUs have it (set it in the code too, where the code overrides the configuration).",
    "Go back to the last good checkpoint, and lower the learning rate or skip the data of these steps.",
    "Find the first module whose output is infinite, and keep it in fp32 (softmax, norms, masks of -1e9).",
)


def overflow(facts: Facts) -> Iterator[Finding]:
    """A scale that falls without end, an optimizer that makes no step."""
    for run in facts.of(Metrics).of.values():
        for number, row in enumerate(rows(run.scales)):
            found = _row(run, row, first=number == 0)
            if found is not None:
                yield found
        if (frozen := skipped_all(run)) is not None:
            first, last = frozen
            yield Finding(
                "fp16_overflow", ERROR, LIKELY, (), f"Every optimizer step from {first.step} to {last.step} was "
                    f"skipped: "
                "nothing is learned, though data is read.",
                (run.evidence(first), run.evidence(last)), "Compare a parameter before and after a step.", CHANGE,
                first.when, weight=2,
            )  # fmt: skip
    yield from _frozen(facts.of(Pauses))


def rows(scales: list[Scale]) -> Iterator[list[Scale]]:
    """Halvings that follow each other without a growth and with hardly a step between."""
    row: list[Scale] = []
    for one in scales:
        if row and (one.before > row[-1].after * 1.01 or one.point - row[-1].point > BETWEEN):
            yield row
            row = []
        row.append(one)
    if row:
        yield row


def _row(run: Run, row: list[Scale], first: bool) -> Finding | None:
    start, end = row[0], row[-1]
    floors = sum(one.before <= one.after for one in row)
    halvings = round(math.log2(start.before) - math.log2(end.after)) if start.before > end.after else 0
    went_on = run.printed - end.point > BETWEEN
    if first and start.point <= BETWEEN and (end.after >= SETTLED or went_on) and not floors:
        return None
    if halvings < STREAK and not floors:
        return None
    sure = halvings >= STREAK or floors >= STREAK
    at = f" and stays at {end.after:g}" if floors else ""
    return Finding(
        "fp16_overflow", ERROR if sure else WARNING, LIKELY if sure else POSSIBLE, (),
        f"The fp16 loss scale falls from {start.before:g} to {end.after:g}{at} in consecutive steps: gradients "
        f"overflow "
        "at any scale.",
        tuple(run.evidence(one) for one in (row if len(row) < 4 else (row[0], row[1], row[-1]))),
        "Compare the optimizer's count of steps with that of the data.", CHANGE, start.when, weight=2,
    )  # fmt: skip


def skipped_all(run: Run) -> tuple[Point, Point] | None:
    """The first and last of at least `STREAK` steps, all skipped. DeepSpeed's counts add up, Megatron-LM's do not."""
    for name in ("skipped", "skipped_here"):
        points = run.of(name)
        start = 0
        best: tuple[Point, Point] | None = None
        for at in range(1, len(points)):
            (before, was), (now, count) = points[at - 1], points[at]
            steps = now.step - before.step
            if steps <= 0 or steps != (count - was if name == "skipped" else count):
                start = at
            elif now.step - points[start][0].step >= STREAK and _is_late(points[start][0], now):
                best = points[start][0], now
        if best is not None:
            return best
    return None


def _is_late(first: Point, last: Point) -> bool:
    """Whether it is no search for the first scale: that ends within 32 halvings."""
    return first.step > 2 * STREAK or last.step - first.step > 32


def _frozen(pauses: Pauses) -> Iterator[Finding]:
    """The optimizer's own iteration stays where it is, and the timer of the data goes on."""
    by_file: dict[tuple[str, int], int] = {}
    for path, iteration, _ in pauses.iterations:
        by_file[path, iteration] = by_file.get((path, iteration), 0) + 1
    for (path, iteration), times in by_file.items():
        timer = pauses.timers.get(path, 0)
        if times >= STREAK and timer > 10 * (iteration + 1):
            evidence = next(one for where, count, one in pauses.iterations if (where, count) == (path, iteration))
            yield Finding(
                "fp16_overflow", ERROR, LIKELY, (), f"The optimizer stays at iteration {iteration} and data runs to "
                    f"{timer}: "
                "every step overflows and is skipped, though the throughput looks normal.", (evidence,),
                "Compare a parameter before and after a step.", CHANGE, weight=2,
            )  # fmt: skip
