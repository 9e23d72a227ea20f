"""Search: from a model, a cluster and a workload to a Plan."""

from __future__ import annotations

import time

import numpy as np

from meshwright.cost.estimate import compose
from meshwright.cost.memory import peak_memory
from meshwright.cost.result import Estimate
from meshwright.cost.step import step_time
from meshwright.cost.verdict import RISK_SHARE
from meshwright.plan.candidates import Candidates
from meshwright.plan.history import nearest_runs
from meshwright.plan.result import ParetoPoint, Plan, Rejected
from meshwright.plan.scan import Question, Scan, scan
from meshwright.plan.shortlist import SIZE, reprice
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import columns_of
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import format_layout
from meshwright.spec.rules import check_layout
from meshwright.spec.rules.rule import divisors
from meshwright.spec.workload import Workload

OBJECTIVES = ("throughput", "memory", "devices")
ALIKE = 2
"""Layouts of one family (degrees and ZeRO stage) among the best that are shown."""
WORTH_THE_RISK = 0.95
"""A layout that may run out of memory is shown when it takes less than this share of the best safe one's time."""


def make_plan(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    *,
    objective: str = "throughput",
    top: int = 5,
    offload: bool = False,
) -> Plan:
    """The layouts that fit, best first, and why the others lost.

    `objective`: throughput (the fastest), memory (the leanest, ties by time) or devices (the fewest devices on which
    a layout fits, then the fastest). `offload` adds layouts that keep states on the host. Raises RequestError for an
    unknown objective and for a `top` below 1.
    """
    if objective not in OBJECTIVES:
        raise RequestError(f"Unknown objective {objective!r}.", OBJECTIVES)
    if top < 1:
        raise RequestError(f"top is {top}.", ("1 or more",))
    started = time.perf_counter()
    question, found = _scan(model, cluster, workload, objective, offload)
    ranked, seconds = _ranked(question, found, objective)
    chosen = _chosen(ranked, seconds, cluster, top)
    plans = tuple(priced(question, ranked.layout(i), seconds[i]) for i in chosen)
    return Plan(
        plans=plans,
        searched=found.searched,
        feasible=found.feasible,
        seconds=time.perf_counter() - started,
        rejected=tuple(Rejected(x.reason, x.count, format_layout(x.example)) for x in found.illegal),
        pareto=tuple(
            ParetoPoint(
                format_layout(found.pareto.layout(i)), float(found.pareto.seconds[i]), float(found.pareto.reserved[i])
            )
            for i in range(len(found.pareto))
        ),
        advice=(),
        warnings=(),
        nearest=nearest_runs(model, cluster, plans[0].layout, workload) if plans else (),
    )


def _scan(model: Model, cluster: Cluster, workload: Workload, objective: str, offload: bool) -> tuple[Question, Scan]:
    """The scan that answers: of the whole cluster, or of the fewest devices on which something fits."""
    counts = divisors(cluster.devices) if objective == "devices" else (cluster.devices,)
    for devices in counts:
        question = Question(model, cluster, workload, devices, offload, by_memory=objective == "memory")
        found = scan(question)
        if found.feasible:
            break
    return question, found


def _ranked(question: Question, found: Scan, objective: str) -> tuple[Candidates, np.ndarray]:
    kept = found.kept
    if objective == "memory":
        order = np.lexsort((kept.seconds, kept.reserved))[:SIZE]
        kept = kept.take(order)
        return kept, reprice(question, kept)
    risky = kept.reserved > RISK_SHARE * question.cluster.device.memory_bytes
    order = np.lexsort((kept.reserved, kept.seconds, risky))
    chosen = kept.take(order[:SIZE])
    seconds = reprice(question, chosen)
    order = np.lexsort((chosen.reserved, seconds))
    return chosen.take(order), seconds[order]


def _chosen(ranked: Candidates, seconds: np.ndarray, cluster: Cluster, top: int) -> list[int]:
    shown: list[int] = []
    alike: dict[int, int] = {}
    for index in range(len(ranked)):
        family = int(ranked.family[index])
        if alike.get(family, 0) < ALIKE and len(shown) < top:
            alike[family] = alike.get(family, 0) + 1
            shown.append(index)
    return shown


def priced(question: Question, layout: Layout, step_seconds: float) -> Estimate:
    """The Estimate of one layout with this step time."""
    q, columns = question, columns_of(layout)
    args = (q.model, q.cluster, q.workload)
    notes = check_layout(*args, layout, spare=q.devices < q.cluster.devices)
    step = step_time(*args, columns, q.software)
    peak = peak_memory(*args, columns, q.software)
    return compose(*args, layout, step, peak, float(step_seconds), notes)
