"""What a pipeline's ranks did in the last traced step: busy, idle, and every action for the Gantt chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.bench.result import Action, StageWork
from meshwright.cost.pipeline import bubble_fraction
from meshwright.diagnose.traces.intervals import total, union
from meshwright.spec.layout import SCHEDULES, Layout
from meshwright.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One replica of the pipeline: of each pipeline rank, the first of its ranks."""

    stages: tuple[StageWork, ...] = ()
    bubble: float | None = None
    formula: float | None = None
    gantt: tuple[Action, ...] = ()


def pipeline_of(ranks: Sequence[Mapping[str, Any]], layout: Layout, workload: Workload) -> Pipeline:
    """From the ranks' traces; without formula and bars where there are none."""
    chosen: dict[int, Mapping[str, Any]] = {}
    for one in ranks:
        chosen.setdefault(one["pipeline_rank"], one)
    traced = {place: one for place, one in sorted(chosen.items()) if one.get("traced") and one["traced"].get("actions")}
    micro_batches = workload.global_batch // (layout.data * layout.micro_batch)
    formula = float(
        bubble_fraction(SCHEDULES.index(layout.schedule), layout.pipeline, micro_batches, layout.virtual_stages)
    )
    if len(traced) < layout.pipeline:
        return Pipeline(formula=formula)
    home = next(iter(traced.values()))
    actions = {}
    for place, one in traced.items():
        # Ranks of one node have one clock; another node's is set by the barrier that all leave together.
        zero = (home if one["node"] == home["node"] else one)["traced"]["sync"]
        actions[place] = [
            (act["start"] - zero, act["start"] - zero + act["seconds"], act) for act in one["traced"]["actions"]
        ]
    begin = min(start for acts in actions.values() for start, _, _ in acts)
    window = max(end for acts in actions.values() for _, end, _ in acts) - begin
    stages = []
    for place, acts in actions.items():
        working = total(union([(start, end) for start, end, _ in acts]))
        stages.append(StageWork(place, tuple(traced[place]["stages"]), working, 1 - working / window))
    gantt = tuple(
        Action(place, act["stage"], act["micro_batch"], act["phase"], start - begin, act["seconds"])
        for place, acts in actions.items()
        for start, _, act in acts
    )
    return Pipeline(tuple(stages), sum(one.idle_share for one in stages) / len(stages), formula, gantt)
