"""Shortlist: the layouts that closed forms rank best, priced again by running their pipeline schedule event by event.

Closed forms are exact for even stages but for a few per cent under the zero-bubble schedules; see `cost.pipeline`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from meshwright.cost.pipeline import Passes, pipeline_seconds
from meshwright.cost.schedules import table, takes
from meshwright.cost.simulate import simulate
from meshwright.cost.step import StepTime, step_time
from meshwright.plan.candidates import Candidates
from meshwright.plan.scan import Question
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import SCHEDULES, Layout

SIZE = 32
"""Layouts that are simulated."""
ACTIONS = 120_000
"""Actions of schedule tables that are simulated at most, best layouts first: about 0.3 s."""


def reprice(question: Question, chosen: Candidates) -> np.ndarray:
    """Step seconds of each layout, by simulation while ACTIONS last, else in closed form."""
    if not len(chosen):
        return chosen.seconds
    q = question
    step = step_time(q.model, q.cluster, q.workload, chosen.columns, q.software)
    seconds = np.array(np.broadcast_to(step.total, len(chosen)), dtype=float)
    left = ACTIONS
    for index in range(len(chosen)):
        layout = chosen.layout(index)
        work = actions(layout, int(_at(step.micro_batches, index)))
        if layout.pipeline > 1 and work <= left:
            left -= work
            seconds[index] = simulated_seconds(layout, _row(step, index))
    return seconds


def simulated_step_seconds(question: Question, layout: Layout) -> float:
    """Step seconds of one layout by simulation, or in closed form where its table is too long for that."""
    q = question
    step = step_time(q.model, q.cluster, q.workload, columns_of(layout), q.software)
    if layout.pipeline == 1 or actions(layout, int(step.micro_batches)) > ACTIONS:
        return float(step.total)
    return simulated_seconds(layout, step)


def actions(layout: Layout, micro_batches: int) -> int:
    """Forwards and backwards of all stages in one step."""
    return 3 * layout.stages * micro_batches


def simulated_seconds(layout: Layout, step: StepTime) -> float:
    """The step's seconds with the pipeline's part from the schedule's table instead of the closed form.

    The closed form stays where PyTorch's class refuses the number of micro-batches and so has no table.
    """
    m, v = int(step.micro_batches), layout.virtual_stages
    if not takes(layout.schedule, layout.pipeline, m):
        return float(step.total)
    passes = [_stages(layout, step, name) for name in ("forward", "input_gradient", "weight_gradient")]
    rows = table(layout.schedule, layout.pipeline, m, v)
    makespan = simulate(rows, *passes, send_seconds=float(step.send)).makespan_seconds
    code = SCHEDULES.index(layout.schedule)
    closed = pipeline_seconds(code, layout.pipeline, m, v, step.rank, step.send, step.first, step.last)
    return float(step.total) - float(closed) + makespan


def _stages(layout: Layout, step: StepTime, name: str) -> list[float]:
    """Seconds of one pass on each stage; the first and the last one differ by the edges."""
    each = float(getattr(step.rank, name)) / layout.virtual_stages
    stages = [each] * layout.stages
    stages[0] += float(getattr(step.first, name))
    stages[-1] += float(getattr(step.last, name))
    return stages


def _row(step: StepTime, index: int) -> StepTime:
    """One row of what the simulation reads; the rest stays columns."""
    return replace(
        step,
        total=_at(step.total, index),
        rank=_passes(step.rank, index),
        first=_passes(step.first, index),
        last=_passes(step.last, index),
        send=_at(step.send, index),
        micro_batches=_at(step.micro_batches, index),
    )


def _passes(passes: Passes, index: int) -> Passes:
    return Passes(*(_at(getattr(passes, f.name), index) for f in fields(passes)))


def _at(value: Any, index: int) -> float:
    return float(value[index]) if np.ndim(value) else float(value)
