"""The order of the runs: at random, and the baseline again and again between them, so that a drift shows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

BETWEEN = 4
"""Runs of other rows from one run of the baseline to the next."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    index: int
    """Place in the order, from 0."""
    label: str
    repeat: int
    """How often the row has run before."""


def order_runs(labels: Sequence[str], baseline: str, repeats: int, seed: int, first: Sequence[str] = ()) -> list[Run]:
    """All runs. Every row but `first` and the baseline runs `repeats` times, in a new random order each time.

    The rows in `first` run once, before all others. The baseline opens and closes every round, and runs after every
    BETWEEN others.
    """
    rest = [label for label in labels if label != baseline and label not in first]
    sequence = list(first)
    shuffled = random.Random(seed)
    for _ in range(repeats):
        shuffled.shuffle(rest)
        for at in range(0, max(len(rest), 1), BETWEEN):
            sequence += [baseline, *rest[at : at + BETWEEN]]
    if rest:
        sequence.append(baseline)
    seen: dict[str, int] = {}
    runs = []
    for index, label in enumerate(sequence):
        runs.append(Run(index, label, seen.get(label, 0)))
        seen[label] = seen.get(label, 0) + 1
    return runs
