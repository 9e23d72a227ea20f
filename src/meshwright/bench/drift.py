"""Drift: a machine that gets slower or faster during a sweep, and step times with that taken out.

The baseline runs again and again. Each run of another row is compared with what the baseline took at its place in the
order: between the run of the baseline before it and the one after it, in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from meshwright.bench.order import Run


def steady_seconds(runs: Sequence[Run], seconds: Mapping[int, float], baseline: str) -> dict[str, float]:
    """By row, its step's seconds if the baseline had always taken its median; none where the baseline has not run.

    `seconds`: the median step of each run that has finished, by the run's index. Of several runs, the median.
    """
    places = [run.index for run in runs if run.label == baseline and run.index in seconds]
    if not places:
        return {}
    usual = median(seconds[place] for place in places)
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.index in seconds:
            then = float(np.interp(run.index, places, [seconds[place] for place in places]))
            found.setdefault(run.label, []).append(seconds[run.index] * usual / then)
    return {label: float(median(values)) for label, values in found.items()}
