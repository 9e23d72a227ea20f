"""The search against brute force: every layout of a small job written down by loops and priced one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest

from meshwright.cost.estimate import estimate
from meshwright.cost.result import DOES_NOT_FIT, FITS, Estimate
from meshwright.plan.question import Question
from meshwright.plan.scan import scan
from meshwright.plan.search import make_plan
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import parse_layout
from meshwright.spec.rules.rule import divisors
from tests.plan.jobs import DENSE, MIXTURE, question

DEVICES = 2
BATCH = {"dense": 4, "mixture": 2}
PIPELINES = [
    ("1f1b", 1), ("gpipe", 1), ("interleaved1f1b", 2), ("loopedbfs", 2), ("interleavedzerobubble", 1),
    ("interleavedzerobubble", 2), ("zbvzerobubble", 2), ("dualpipev", 2),
]  # fmt: skip
"""Of four layers on two ranks."""


def splits() -> Iterator[dict[str, object]]:
    """Two devices: data ranks, tensor, context or pipeline ranks."""
    yield {"replicate": 2}
    for stage in (1, 2, 3):
        yield {"shard": 2, "zero_stage": stage}
    for sequence_parallel in (True, False):
        yield {"tensor": 2, "sequence_parallel": sequence_parallel}
    for kind, stage in product(("ring", "allgather", "ulysses"), (0, 1, 2, 3)):
        yield {"context": 2, "context_kind": kind, "zero_stage": stage}
    for schedule, stages in PIPELINES:
        yield {"pipeline": 2, "schedule": schedule, "virtual_stages": stages}


def every_layout(model: Model) -> Iterator[Layout]:
    """All layouts of the model on two devices; sequence parallelism stays on beside expert parallelism."""
    for split, micro_batch, recompute in product(splits(), divisors(BATCH[model.name]), ("none", "selective", "full")):
        layout = Layout(**split, micro_batch=micro_batch, recompute=recompute)  # type: ignore[arg-type]
        yield layout
        if model.experts is not None and layout.pipeline == 1 and layout.sequence_parallel:
            yield Layout(**split, micro_batch=micro_batch, recompute=recompute, expert=2)  # type: ignore[arg-type]


@cache
def brute_force(model: Model, memory_bytes: float) -> tuple[Estimate, ...]:
    """The estimates of all legal layouts."""
    asked = question(model, DEVICES, batch=BATCH[model.name], memory_bytes=memory_bytes)
    found = []
    for layout in every_layout(model):
        try:
            found.append(estimate(asked.model, asked.cluster, asked.workload, layout))
        except LayoutError:
            continue
    return tuple(found)


def half_full(model: Model) -> Question:
    """A question about devices whose memory every other layout exceeds."""
    need = [priced.memory.reserved_bytes for priced in brute_force(model, 2.0**40)]
    return question(model, DEVICES, batch=BATCH[model.name], memory_bytes=float(np.median(need)))


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_as_many_layouts_are_legal_and_fit_as_brute_force_finds(model: Model) -> None:
    asked = half_full(model)
    legal = brute_force(model, asked.cluster.device.memory_bytes)
    fitting = [priced for priced in legal if priced.memory.verdict != DOES_NOT_FIT]
    found = scan(asked)
    assert 0 < len(fitting) < len(legal)
    assert found.feasible == len(fitting)
    assert found.searched - sum(illegal.count for illegal in found.illegal) == len(legal)


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_the_optimum_is_that_of_brute_force(model: Model) -> None:
    asked = half_full(model)
    legal = brute_force(model, asked.cluster.device.memory_bytes)
    safe = [priced for priced in legal if priced.memory.verdict == FITS]
    best = min(safe, key=lambda priced: priced.step_seconds)
    found = scan(asked)
    kept = found.kept.seconds[found.kept.reserved <= 0.95 * asked.cluster.device.memory_bytes]
    leanest = min(priced.memory.reserved_bytes for priced in legal if priced.memory.verdict != DOES_NOT_FIT)
    assert kept.min() == pytest.approx(best.step_seconds)
    assert found.pareto.reserved.min() == pytest.approx(leanest)
    plan = make_plan(asked.model, asked.cluster, asked.workload)
    assert plan.plans[0].step_seconds == pytest.approx(best.step_seconds, rel=0.01)


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_no_layout_beats_the_pareto_line_in_both_time_and_memory(model: Model) -> None:
    asked = half_full(model)
    legal = brute_force(model, asked.cluster.device.memory_bytes)
    line = make_plan(asked.model, asked.cluster, asked.workload).pareto
    assert [point.step_seconds for point in line] == sorted(point.step_seconds for point in line)
    for priced in legal:
        if priced.memory.verdict != DOES_NOT_FIT:
            assert any(
                point.step_seconds <= priced.step_seconds * (1 + 1e-9)
                and point.reserved_bytes <= priced.memory.reserved_bytes * (1 + 1e-9)
                for point in line
            )


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_every_layout_is_shown_or_lost_for_one_reason(model: Model) -> None:
    asked = half_full(model)
    plan = make_plan(asked.model, asked.cluster, asked.workload)
    assert sum(lost.count for lost in plan.rejected) + len(plan.plans) == plan.searched


def test_the_shown_layouts_are_distinct_safe_and_read_back() -> None:
    asked = half_full(DENSE)
    plan = make_plan(asked.model, asked.cluster, asked.workload)
    shown = [priced.layout for priced in plan.plans]
    assert len(set(shown)) == len(shown) == 5
    assert [parse_layout(str(layout)) for layout in shown] == shown
    # The last one may be a faster layout at risk, with a warning.
    assert all(priced.memory.verdict == FITS for priced in plan.plans[:-1])
    families = [(x.tensor, x.context, x.pipeline, x.expert, x.zero_stage) for x in shown[:-1]]
    assert max(families.count(family) for family in families) <= 2
