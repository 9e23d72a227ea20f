"""Meters: times of a step and of its data as programs for images print them, without the names that `numbers` knows.

`Time 0.427 (2.773)  Data 0.000 (2.393)`: this batch and the mean of the epoch so far (pytorch/examples
imagenet/main.py and what descends from it); `time: 0.391, data_time: 0.009` (mmengine, detectron2), `time: 2.5  data:
0.03` (torchvision references). Only some batches are printed, so that a mean says more than the printed batches.
"""

from __future__ import annotations

import re

_SIZE = r"(?P<{0}>\d{{1,6}}\.\d{{1,9}})s?\s{{0,4}}(?:\(\s{{0,8}}(?P<{0}_mean>\d{{1,6}}\.\d{{1,9}})s?\))?"
_TIMES = re.compile(
    rf"\btime:?\s{{1,8}}{_SIZE.format('time')}.{{0,120}}?\bdata(?:[_ ]time)?:?\s{{1,8}}{_SIZE.format('data')}",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\bEpoch(?:\(train\))?:?\s{0,4}\[(\d{1,6})\]\s{0,4}\[\s{0,8}(\d{1,9})/(\d{1,9})\]")
_TEST = re.compile(r"\b(?:Test|Val|Eval|Epoch\((?:val|test)\)):?\s{0,4}\[")


def is_test(text: str) -> bool:
    """Whether the batch is one of an evaluation."""
    return _TEST.search(text) is not None


def meters(text: str) -> dict[str, float]:
    """`seconds`, `data_seconds`, their means over the epoch, and the step counted over epochs, as far as told."""
    found: dict[str, float] = {}
    if times := _TIMES.search(text):
        names = {"time": "seconds", "time_mean": "mean_seconds", "data": "data_seconds", "data_mean": "mean_data"}
        found = {name: float(times[group]) for group, name in names.items() if times[group]}
    if epoch := _EPOCH.search(text):
        number, batch, batches = (int(one) for one in epoch.groups())
        found["epoch"], found["step"] = float(number), float(number * max(batches, 1) + batch)
    return found
