"""Votes: a pipeline's stages tell each other, before the first step, that they all know their shapes.

A rehearsal's stages hear nothing, and do know theirs (`train.step.Step.hidden`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def all_know_their_shapes() -> Iterator[None]:
    """Inside, no pipeline stage asks the others."""
    from torch.distributed.pipelining import schedules

    before = schedules._PipelineSchedule._warmup_p2p

    def agree(_: Any, stages: Sequence[Any], has_backward: bool, p2p_done: bool) -> None:
        for stage in stages:
            stage._inference_mode = schedules.InferenceMode.STATIC  # type: ignore[attr-defined]

    schedules._PipelineSchedule._warmup_p2p = agree  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        schedules._PipelineSchedule._warmup_p2p = before  # type: ignore[method-assign]
