"""Shortlist: the layouts that closed forms rank best, priced again by running their pipeline schedule event by event.

Closed forms are exact for even stages but for a few per cent under the zero-bubble schedules; see `cost.pipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from meshwright.cost.pipeline import Passes, pipeline_seconds
from meshwright.cost.schedules import table, takes
from meshwright.cost.simulate import simulate
from meshwright.cost.step import StepTime, step_time
from meshwright.plan.candidates import Candidates
from meshwright.plan.question import Question
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import SCHEDULES, Layout

SIZE = 32
"""Layouts that are simulated."""
ACTIONS = 8_000
"""Actions of schedule tables that are simulated in any case, best layouts first: some 50 ms."""
ACTIONS_A_LAYOUT = 0.25
"""Further actions for each layout that was searched: simulation may take about a quarter of the scan's time."""


@dataclass(frozen=True, slots=True)
class Repriced:
    """Step seconds of the shortlist."""

    seconds: np.ndarray
    simulated: np.ndarray
    """Whether each is from the simulation."""


def action_budget(searched: int) -> int:
    """Actions that may be simulated after a scan of so many layouts."""
    return ACTIONS + int(ACTIONS_A_LAYOUT * searched)


def reprice(question: Question, chosen: Candidates, budget: int) -> Repriced:
    """Step seconds of each layout, by simulation while the budget of actions lasts, else in closed form."""
    run = np.zeros(len(chosen), dtype=bool)
    if not len(chosen):
        return Repriced(chosen.seconds, run)
    q = question
    step = step_time(q.model, q.cluster, q.workload, chosen.columns, q.software)
    seconds = np.array(np.broadcast_to(step.total, len(chosen)), dtype=float)
    left = budget
    for index in range(len(chosen)):
        layout = chosen.layout(index)
        work = actions(layout, int(_at(step.micro_batches, index)))
        if layout.pipeline > 1 and work <= left:
            left -= work
            run[index] = True
            seconds[index] = simulated_seconds(layout, _row(step, index))
    return Repriced(seconds, run)


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
    rows = table(layout.schedule, layout.pipeline, m, v)
    run = simulate(
        rows,
        forward=_stages(layout, step, "forward"),
        input_gradient=_stages(layout, step, "input_gradient"),
        weight_gradient=_stages(layout, step, "weight_gradient"),
        send_seconds=float(step.send),
    )
    code = SCHEDULES.index(layout.schedule)
    closed = pipeline_seconds(code, layout.pipeline, m, v, step.rank, step.send, step.first, step.last)
    return float(step.total) - float(closed) + run.makespan_seconds


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
        ranks=replace(
            step.ranks,
            middle=_passes(step.rank, index),
            first=_passes(step.first, index),
            last=_passes(step.last, index),
            send=_at(step.send, index),
        ),
        micro_batches=_at(step.micro_batches, index),
    )


def _passes(passes: Passes, index: int) -> Passes:
    return Passes(*(_at(getattr(passes, f.name), index) for f in fields(passes)))


def _at(value: Any, index: int) -> float:
    return float(value[index]) if np.ndim(value) else float(value)
