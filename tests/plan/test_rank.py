"""The order of a plan: printed times never fall, one of a kind, and simple ones first among equals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.plan.candidates import Candidates
from meshwright.plan.rank import rank
from meshwright.plan.result import Plan
from meshwright.plan.scan import Scan, scan
from meshwright.plan.search import make_plan
from meshwright.plan.shortlist import simulated_estimate
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.columns import stack
from meshwright.spec.model_config import load_model
from meshwright.spec.notation import parse_layout
from meshwright.spec.units import duration
from meshwright.spec.workload import Workload
from tests.plan.jobs import DENSE, question

JOBS = [("llama-2-7b", "8xA100-40GB", 4096, 64), ("gpt3-13b", "16xA100-80GB", 2048, 256)]


def plan_of(model: str, cluster: str, seq_len: int, batch: int) -> Plan:
    return make_plan(load_model(model), parse_cluster(cluster), Workload(seq_len, batch), top=8)


def only(found: Scan, *wanted: str) -> Scan:
    """The scan with no more than these layouts, priced alike."""
    layouts = [parse_layout(text) for text in wanted]
    columns, none = stack(layouts), np.zeros(len(layouts))
    rows = Candidates(columns, none + 2.0**30, none + 1.0, np.arange(len(layouts)), np.full(len(layouts), 7))
    return replace(found, kept=rows)


@pytest.mark.parametrize("job", JOBS)
def test_only_the_first_may_be_slower_than_the_next_and_then_the_plan_says_so(job: tuple[str, str, int, int]) -> None:
    plan = plan_of(*job)
    safe = [priced for priced in plan.plans if priced.memory.verdict == "fits"]
    times = [float(f"{priced.step_seconds:.3g}") for priced in safe]
    assert times[1:] == sorted(times[1:])
    if times[0] > min(times):
        assert plan.beaten is not None
    if plan.beaten is not None:
        assert plan.beaten.step_seconds < safe[0].step_seconds <= 1.01 * plan.beaten.step_seconds


@pytest.mark.parametrize("job", JOBS)
def test_layouts_that_print_alike_differ_in_more_than_context(job: tuple[str, str, int, int]) -> None:
    seen = set()
    for priced in plan_of(*job).plans:
        x = priced.layout
        split = (x.zero_stage, x.tensor, x.pipeline, x.schedule, x.virtual_stages, x.expert, x.recompute)
        seen.add((split, duration(priced.step_seconds), f"{priced.memory.reserved_bytes:.3g}", x.replicate))
    assert len(seen) == len(plan_of(*job).plans)


def test_of_layouts_that_differ_by_less_than_one_per_cent_the_one_with_fewest_axes_comes_first() -> None:
    asked = question(DENSE, 2, batch=8)
    found = scan(asked)
    by_time = rank(asked, found, 8)
    first = by_time.chosen.layout(0)
    near = by_time.seconds <= 1.01 * by_time.seconds.min()
    used = [sum(d > 1 for d in (x.tensor, x.context, x.pipeline)) for x in map(by_time.chosen.layout, range(8))]
    assert near[0]
    assert sum(d > 1 for d in (first.tensor, first.context, first.pipeline)) == min(np.array(used)[near])


def test_a_layout_that_nothing_runs_waits_behind_its_equal_that_something_runs() -> None:
    asked = question(DENSE, 2, batch=8)
    found = only(scan(asked), "ddp2 mbs2", "ddp2 mbs2")
    for bits in ([0, 4], [4, 0]):
        ranking = rank(asked, replace(found, kept=replace(found.kept, runtimes=np.array(bits))), 1)
        assert ranking.chosen.runtimes.tolist() == [4]
        assert [each.best is not None for each in ranking.by_runtime] == [False, False, True]


def test_a_plan_and_the_simulated_estimate_give_the_same_seconds() -> None:
    plan = plan_of("gpt3-13b", "16xA100-80GB", 2048, 256)
    piped = [priced for priced in plan.plans if priced.layout.pipeline > 1][:2]
    assert piped
    for priced in piped:
        alone = simulated_estimate(priced.model, priced.cluster, priced.workload, priced.layout)
        assert alone.step_seconds == pytest.approx(priced.step_seconds)
        assert alone.time == pytest.approx(dict(priced.time))
