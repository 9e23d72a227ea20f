"""What each runtime can run: the same as the rules say, in the search as in its by-product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.plan.question import Question
from meshwright.plan.runtimes import runtime_bit, runtimes_of
from meshwright.plan.search import make_plan
from meshwright.plan.space import axes, chunks, shapes
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import LayoutError
from meshwright.spec.model import Model
from meshwright.spec.model_config import load_model
from meshwright.spec.notation import parse_layout
from meshwright.spec.rules import RUNTIMES, check_layout, legal_mask
from meshwright.spec.workload import Workload
from tests.plan.jobs import DENSE, MIXTURE, question


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_runs_what_the_rules_let_it(model: Model, runtime: str) -> None:
    q = question(model, 4)
    args = (q.model, q.cluster, q.workload)
    refused = 0
    for columns in chunks(model, q.workload, shapes(axes(*args, 4), q.cluster, 4)):
        legal, _ = legal_mask(*args, columns)
        run, _ = legal_mask(*args, columns, runtime=runtime)
        bits = runtimes_of(q, columns.take(legal), int(legal.sum()))
        assert np.array_equal(bits & runtime_bit(runtime) > 0, run[legal])
        refused += int((legal & ~run).sum())
    assert refused


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_search_for_a_runtime_finds_only_what_it_runs_and_not_less_than_was_promised(runtime: str) -> None:
    job = (load_model("gpt2"), parse_cluster("4xA100-40GB"), Workload(1024, 64))
    own = make_plan(*job, runtime=runtime)
    for priced in own.plans:
        check_layout(*job, priced.layout, runtime=runtime)
    [promised] = [each.best for each in make_plan(*job).by_runtime if each.runtime == runtime]
    assert promised is not None
    check_layout(*job, parse_layout(promised.layout), runtime=runtime)
    assert own.plans[0].step_seconds == pytest.approx(promised.step_seconds, rel=0.011)


def test_megatron_has_no_zero_bubble_schedules() -> None:
    # megatron/core/pipeline_parallel/schedules.py: 1F1B, interleaved or not.
    q: Question = replace(question(DENSE, 4, batch=16), runtime="megatron")
    plan = make_plan(q.model, q.cluster, q.workload, runtime="megatron", top=20)
    assert {priced.layout.schedule for priced in plan.plans} <= {"1f1b", "interleaved1f1b"}


def test_an_unknown_runtime_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LayoutError, match="pytorch, megatron, deepspeed"):
        make_plan(load_model("gpt2"), parse_cluster("1xH100"), Workload(1024, 8), runtime="torch")
