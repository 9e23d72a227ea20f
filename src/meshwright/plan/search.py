"""Search: from a model, a cluster and a workload to a Plan.

The space is scanned in closed form (`scan`), the best of it is simulated and ranked (`rank`), and `reasons` says why
the rest lost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from meshwright.cost.result import Estimate
from meshwright.cost.verdict import RISK_SHARE, verdict
from meshwright.plan.advice import advice
from meshwright.plan.candidates import Candidates
from meshwright.plan.evidence import JUDGED, evidence
from meshwright.plan.history import nearest_runs
from meshwright.plan.question import Question
from meshwright.plan.rank import rank
from meshwright.plan.reasons import nothing_fits, reasons
from meshwright.plan.remedies import refuse_job, remedies
from meshwright.plan.result import ParetoPoint, Plan, Rejected
from meshwright.plan.scan import Progress, Scan, scan
from meshwright.plan.shortlist import simulated_estimate
from meshwright.plan.warnings import risky_alternative, warnings
from meshwright.spec.cluster import Cluster
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import format_layout
from meshwright.spec.rules.rule import divisors
from meshwright.spec.workload import Workload

OBJECTIVES = ("throughput", "memory", "devices")
NODE_BY_NODE = 8
"""Nodes up to which every number of them is tried for the fewest devices."""


def make_plan(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    *,
    objective: str = "throughput",
    top: int = 5,
    offload: bool = False,
    runtime: str | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The layouts that fit, best first, and why the others lost.

    `objective`: throughput (the fastest), memory (the leanest, the fastest of those within 1 %) or devices (the fewest
    of `device_counts` on which a layout fits, then the fastest). `offload` adds layouts that keep states on the host.
    `runtime` leaves only layouts that this one runs. `progress` is told how many layouts of how many are decided.
    Raises RequestError for an unknown objective or runtime, for a `top` below 1, for a precision that the device lacks
    and for layers or adapters that the model does not have.
    """
    if objective not in OBJECTIVES:
        raise RequestError(f"Unknown objective {objective!r}.", OBJECTIVES)
    if top < 1:
        raise RequestError(f"top is {top}.", ("1 or more",))
    started = time.perf_counter()
    refuse_job(Question(model, cluster, workload, cluster.devices))
    counts = device_counts(cluster) if objective == "devices" else (cluster.devices,)
    tried = _try(
        [Question(model, cluster, workload, n, offload, objective == "memory", runtime) for n in counts], progress
    )
    question, found = tried.question, tried.found
    ranking = rank(question, found, top)
    shown = range(len(ranking.chosen))
    plans = tuple(_estimate(question, ranking.chosen.layout(i), float(ranking.seconds[i])) for i in shown)
    near = nearest_runs(model, cluster, plans[0].layout, workload, JUDGED) if plans else ()
    proof = evidence(near)
    told = reasons(question, found, plans, ranking.chosen.family.tolist())
    return Plan(
        plans=plans,
        searched=found.searched + sum(reason.count for reason in tried.failed),
        feasible=found.feasible,
        seconds=time.perf_counter() - started,
        rejected=(*told, *tried.failed),
        pareto=_pareto(question, found.pareto, plans),
        advice=advice(question, plans[0] if plans else None),
        warnings=_warnings(question, plans, ranking.risky),
        nearest=proof.shown,
        error=proof.error,
        remedies=() if plans else remedies(question),
        memory_priced=found.memory_priced,
        simulated=ranking.simulated,
        by_runtime=ranking.by_runtime,
        beaten=ranking.beaten,
    )


def device_counts(cluster: Cluster) -> tuple[int, ...]:
    """Numbers of devices on which `objective="devices"` looks for a layout, fewest first.

    All of them in one node, whole nodes up to NODE_BY_NODE, and beyond that the divisors of the cluster's devices.
    """
    per_node = cluster.devices_per_node
    nodes = range(per_node, min(NODE_BY_NODE, cluster.nodes) * per_node + 1, per_node)
    counts = {*range(1, per_node + 1), *nodes, *divisors(cluster.devices)}
    return tuple(sorted(n for n in counts if n <= per_node or n % per_node == 0))


@dataclass(frozen=True, slots=True)
class _Tried:
    """The scan that answers, and why the ones before it did not."""

    question: Question
    found: Scan
    failed: tuple[Rejected, ...]


def _try(questions: list[Question], progress: Progress | None) -> _Tried:
    """The first question to which a layout fits safely; else the first with any that fits; else the last."""
    failed: list[Rejected] = []
    risky: _Tried | None = None
    for question in questions:
        found = scan(question, progress)
        tried = _Tried(question, found, tuple(failed))
        limit = RISK_SHARE * question.cluster.device.memory_bytes
        if (found.kept.reserved <= limit).any():
            return tried
        if found.feasible and risky is None:
            risky = tried
        failed.append(nothing_fits(question, found))
    return risky or tried


def _estimate(question: Question, layout: Layout, step_seconds: float) -> Estimate:
    """The Estimate of one layout with this step time."""
    q = question
    return simulated_estimate(
        q.model, q.cluster, q.workload, layout, runtime=q.runtime, spare=q.spare, step_seconds=step_seconds
    )


def _pareto(question: Question, rows: Candidates, shown: tuple[Estimate, ...]) -> tuple[ParetoPoint, ...]:
    """The line, with the step time that was simulated where the layout is shown."""
    capacity = question.cluster.device.memory_bytes
    simulated = {plan.layout: plan.step_seconds for plan in shown}
    points = [
        ParetoPoint(format_layout(layout), simulated.get(layout, float(rows.seconds[i])), need, verdict(need, capacity))
        for i, need in enumerate(rows.reserved.tolist())
        for layout in (rows.layout(i),)
    ]
    return tuple(sorted(points, key=lambda point: point.step_seconds))


def _warnings(question: Question, plans: tuple[Estimate, ...], risky: bool) -> tuple[str, ...]:
    if not plans:
        return question.model.warnings + question.cluster.warnings
    alternative = (risky_alternative(plans[-1], plans[0]),) if risky else ()
    return warnings(question, plans[0]) + alternative
