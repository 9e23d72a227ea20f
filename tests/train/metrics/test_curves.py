"""TensorBoard's event files have the names and numbers of metrics.jsonl."""

from __future__ import annotations

import math
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from meshwright.train.metrics.curves import TensorBoardSink

from .reports import report


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_a_curve_has_the_name_and_the_numbers_of_the_field(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path)
    sink.write(report(1, loss=3.0, extra={"router_entropy": 1.5}))
    sink.write(report(2, loss=math.nan))
    sink.write(report(3, loss=1.0))
    sink.close()
    events = read(tmp_path)
    assert [(point.step, point.value) for point in events.Scalars("loss")] == [(1, 3.0), (3, 1.0)]
    assert {"loss", "grad_norm", "lr", "tokens_per_second", "router_entropy"} <= set(events.Tags()["scalars"])
    assert "memory_kind" not in events.Tags()["scalars"]


def test_a_resumed_run_hides_the_steps_that_it_does_again(tmp_path: Path) -> None:
    first = TensorBoardSink(tmp_path)
    for step in (1, 2, 3):
        first.write(report(step, loss=10.0 + step))
    first.close()
    second = TensorBoardSink(tmp_path, resumed_step=1)
    for step in (2, 3):
        second.write(report(step, loss=20.0 + step))
    second.close()
    assert [(point.step, point.value) for point in read(tmp_path).Scalars("loss")] == [(1, 11.0), (2, 22.0), (3, 23.0)]
