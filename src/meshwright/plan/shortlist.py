"""Shortlist: the layouts that closed forms rank best, priced again by running their pipeline schedule event by event.

Closed forms are exact for even stages but for a few per cent under the zero-bubble schedules; see `cost.pipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from meshwright.cost.estimate import compose
from meshwright.cost.memory import peak_memory
from meshwright.cost.pipeline import Passes
from meshwright.cost.result import Estimate
from meshwright.cost.schedules import table, takes
from meshwright.cost.simulate import simulate
from meshwright.cost.step import StepTime, step_time, with_lent
from meshwright.plan.candidates import Candidates
from meshwright.plan.question import Question
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import columns_of
from meshwright.spec.implementation import load_implementation
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.rules import check_layout
from meshwright.spec.workload import Workload

SIZE = 32
"""Layouts that are simulated."""
ACTIONS = 8_000
"""Actions of the longest schedule table that is simulated, and of what is in any case, best layouts first: 50 ms."""
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
        m = int(_at(step.micro_batches, index))
        work = actions(layout, m)
        if _may_run(layout, m) and work <= left:
            left -= work
            run[index] = True
            seconds[index] = simulated_seconds(layout, _row(step, index))
    return Repriced(seconds, run)


def simulated_estimate(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    layout: Layout,
    *,
    runtime: str | None = None,
    spare: bool = False,
    step_seconds: float | None = None,
) -> Estimate:
    """`cost.estimate.estimate` with the pipeline run event by event, as a plan prices its layouts.

    `step_seconds` is that time where it is known already. Raises LayoutError as `check_layout` does.
    """
    notes = check_layout(model, cluster, workload, layout, runtime=runtime, spare=spare)
    software = load_implementation(workload.implementation)
    columns = columns_of(layout)
    step = step_time(model, cluster, workload, columns, software)
    peak = peak_memory(model, cluster, workload, columns, software)
    seconds = _simulated_or_closed(layout, step) if step_seconds is None else step_seconds
    return compose(model, cluster, workload, layout, step, peak, seconds, notes)


def simulated_step_seconds(question: Question, layout: Layout) -> float:
    """Step seconds of one layout by simulation, or in closed form where its table is too long for that."""
    q = question
    return _simulated_or_closed(layout, step_time(q.model, q.cluster, q.workload, columns_of(layout), q.software))


def _simulated_or_closed(layout: Layout, step: StepTime) -> float:
    """Layers of stages given by hand stay with the closed form, which knows them."""
    if layout.stage_layers or not _may_run(layout, int(step.micro_batches)):
        return float(step.total)
    return simulated_seconds(layout, step)


def _may_run(layout: Layout, micro_batches: int) -> bool:
    """Whether there is a pipeline, and its table is short enough."""
    return layout.pipeline > 1 and actions(layout, micro_batches) <= ACTIONS


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
    makespan = run.makespan_seconds
    if step.lent:
        makespan = float(with_lent(makespan, step.ranks, m, layout.pipeline, step.lent))
    return float(step.total) - float(step.busy) + makespan


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
        busy=_at(step.busy, index),
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
