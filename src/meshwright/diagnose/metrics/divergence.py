"""Training that leaves its course with finite numbers: a loss that rises for good, norms that explode, no learning.

A loss may rise and come back, and norms have peaks: spikes that recover are part of healthy runs (PaLM, arXiv
2204.02311, 5.1; OLMo 2, arXiv 2501.00656, 3). So only what lasts to the end of a run is more than a remark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from meshwright.diagnose.configuration.settings import folder
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.pairs import Stretch, stretches
from meshwright.diagnose.metrics.series import Point

WINDOW = 5
"""Steps whose median is one reading: a single batch says little."""
FEWEST = 10
"""Steps that make a course."""
RISEN = 1.5
"""End over minimum: 3.0 to 4.5 undoes most of what a language model has learned; curricula and new data change less."""
EXPLODED = 10.0
"""The last norm over the run's median …"""
LASTING = 3.0
"""… and the median of the last ones: not one batch alone."""
SPIKE = 100.0
"""A norm over the median of all: ordinary peaks are 2 to 10 times as high."""
FLAT = 1e-3
"""Relative range of a loss that does not move: noise between batches is larger."""
Series = Sequence[tuple[Point, float]]


def divergence(facts: Facts) -> Iterator[Finding]:
    """What one run of each job shows: its ranks share gradients, so that one of them tells."""
    told: set[str] = set()
    for one in stretches(facts):
        home = folder(one.run.path)
        if one.run.rank is not None and home in told:
            continue
        losses, norms, rates = (_series(one, name) for name in ("loss", "grad_norm", "lr"))
        found = [*_rises(one, losses, norms), *_nothing_learned(one, losses, norms), *_no_rate(one, rates, losses)]
        yield from found or _spikes(one, norms)
        if one.run.rank is not None:
            told.add(home)


def _series(one: Stretch, name: str) -> Series:
    """Finite values of a name."""
    return [(point, value) for point in one.points if math.isfinite(value := point.values.get(name, math.nan))]


def _rises(one: Stretch, losses: Series, norms: Series) -> Iterator[Finding]:
    if len(losses) < FEWEST:
        return
    values = [value for _, value in losses]
    readings = [median(values[at : at + WINDOW]) for at in range(len(values) - WINDOW + 1)]
    low = min(readings)
    end, at = readings[-1], readings.index(low)
    # Only at the end of its rise: a loss that is on its way back recovers.
    if low <= 0 or end < RISEN * low or end < 0.8 * max(readings[at:]):
        return
    lowest = min(losses[at : at + WINDOW], key=lambda pair: pair[1])[0]
    grown = _growth(norms)
    told = f", and the gradient norm is {grown:.3g} times its median" if grown >= EXPLODED else ""
    yield Finding(
        "batch_lr_scaling", WARNING if grown >= EXPLODED else INFO, POSSIBLE, (),
        f"The loss rises from {low:.4g} near step {lowest.step} to {end:.4g} at the end{told}: training diverges, as "
        "by a learning rate that is too high for the batch, or by bad data from there on.",
        (one.run.evidence(lowest), one.run.evidence(losses[-1][0])),
        "Go on from a checkpoint before it with half the learning rate; then with other data.",
        ("Go back to a checkpoint before the rise, and lower the learning rate or warm up longer.",
         "Clip gradients (max_norm 1.0), and look at the data that was read when the rise began."), lowest.when,
        weight=1,
    )  # fmt: skip


def _growth(norms: Series) -> float:
    """Norms at the end over the median of all; 0: not known."""
    values = [value for _, value in norms]
    middle = median(values) if len(values) >= FEWEST else 0.0
    lasting = middle > 0 and median(values[-WINDOW:]) >= LASTING * middle
    return values[-1] / middle if lasting else 0.0


def _nothing_learned(one: Stretch, losses: Series, norms: Series) -> Iterator[Finding]:
    """Gradients that are zero at every step."""
    if min(len(losses), len(norms)) < FEWEST or any(value != 0.0 for _, value in norms):
        return
    values = [value for _, value in losses]
    if max(values) > 0 and max(values) - min(values) <= FLAT * max(values):  # a loss of 0 has no gradient left
        yield Finding(
            "ddp_unused_parameters", WARNING, POSSIBLE, (),
            f"The gradient norm is 0 at all {len(norms)} steps and the loss stays at {values[-1]:g}: no parameter gets "
            "a gradient, and nothing is learned.",
            (one.run.evidence(norms[0][0]), one.run.evidence(norms[-1][0])),
            "Print the parameters that have requires_grad and whose .grad is None or 0 after backward().",
            ("See that the loss depends on the model's output: no detach(), no no_grad(), labels that are not all "
             "masked.", "See that parameters require gradients and are those that the optimizer holds."), weight=1,
        )  # fmt: skip


def _no_rate(one: Stretch, rates: Series, losses: Series) -> Iterator[Finding]:
    """A learning rate that is 0 at every step."""
    if len(rates) < 2 * FEWEST or any(value != 0.0 for _, value in rates):
        return
    values = [value for _, value in losses]
    falls = len(values) >= 2 * WINDOW and median(values[-WINDOW:]) < (1 - FLAT) * median(values[:WINDOW])
    yield Finding(
        "lr_schedule_scaling", INFO if falls or not values else WARNING, POSSIBLE, (),
        f"The learning rate is 0 at all {len(rates)} steps: "
        + ("what is printed may be rounded, as the loss falls." if falls else "parameters do not change."),
        (one.run.evidence(rates[0][0]), one.run.evidence(rates[-1][0])),
        "Print optimizer.param_groups[0]['lr'] with all digits before a step.",
        ("See that the scheduler's warm-up and total steps are set, and that it is stepped.",), weight=1,
    )  # fmt: skip


def _spikes(one: Stretch, norms: Series) -> Iterator[Finding]:
    """A gradient norm far above all others, after the start."""
    if len(norms) < FEWEST:
        return
    middle = median(value for _, value in norms)
    point, highest = max(norms[WINDOW:], key=lambda pair: pair[1])
    if middle > 0 and highest >= SPIKE * middle:
        yield Finding(
            "batch_lr_scaling", INFO, POSSIBLE, (),
            f"At step {point.step} the gradient norm is {highest:.4g}, {highest / middle:.0f} times its median: a bad "
            "batch, or a learning rate that is near its limit.",
            (one.run.evidence(point),), "Compare the loss before and after: a spike that recovers needs nothing.",
            ("Clip gradients, and look at the data of that step.",), point.when,
        )  # fmt: skip
