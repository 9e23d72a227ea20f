"""Drift: a machine that gets slower or faster during a sweep, and step times with that taken out.

The baseline runs again and again. What it takes at a run's place in the order, between its run before that and the one
after it in proportion, says how fast the machine was then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from meshwright.bench.order import Run


def drift_factors(runs: Sequence[Run], seconds: Mapping[int, float], baseline: str) -> dict[int, float]:
    """By a finished run's index, what its seconds are multiplied with to be those of the machine's usual speed.

    `seconds`: the median step of each run that has finished, by its index. Usual is the median of the baseline's runs;
    where none has finished, every factor is 1.
    """
    places = [run.index for run in runs if run.label == baseline and run.index in seconds]
    if not places:
        return dict.fromkeys(seconds, 1.0)
    taken = [seconds[place] for place in places]
    usual = median(taken)
    return {index: usual / float(np.interp(index, places, taken)) for index in seconds}
