"""Busy and idle shares of a pipeline's ranks, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.bench.pipeline import pipeline_of
from meshwright.spec import parse_layout
from meshwright.spec.workload import make_workload


def rank(
    number: int, place: int, actions: list[tuple[str, float, float]], sync: float = 100.0, node: int = 0
) -> dict[str, Any]:
    return {
        "rank": number,
        "node": node,
        "pipeline_rank": place,
        "stages": [place],
        "traced": {
            "sync": sync,
            "actions": [
                {"phase": phase, "stage": place, "micro_batch": 0, "start": sync + start, "seconds": end - start}
                for phase, start, end in actions
            ],
        },
    }


LAYOUT = parse_layout("pp2:gpipe mbs1")
WORK = make_workload(8, 2, precision="fp32")


def test_idle_is_what_is_left_from_the_pipelines_first_action_to_its_last() -> None:
    first = rank(0, 0, [("forward", 1, 2), ("forward", 2, 3), ("backward", 5, 7), ("backward", 7, 9)])
    second = rank(1, 1, [("forward", 2, 3), ("forward", 3, 4), ("backward", 4, 6), ("backward", 6, 8)])
    found = pipeline_of([first, second], LAYOUT, WORK)
    assert [one.busy_seconds for one in found.stages] == [pytest.approx(6), pytest.approx(6)]
    assert [one.idle_share for one in found.stages] == [pytest.approx(0.25), pytest.approx(0.25)]
    assert found.bubble == pytest.approx(0.25)
    assert found.formula == pytest.approx(1 / 3)  # (p-1)/(m+p-1), p = m = 2
    assert found.gantt[0].start == 0
    assert found.gantt[4].rank == 1
    assert found.gantt[4].start == pytest.approx(1)


def test_ranks_of_other_nodes_are_set_by_the_barrier_that_all_left_together() -> None:
    first = rank(0, 0, [("forward", 0, 1)], sync=100.0)
    second = rank(1, 1, [("forward", 1, 2)], sync=5000.0, node=1)
    found = pipeline_of([first, second], LAYOUT, WORK)
    assert found.bubble == pytest.approx(0.5)


def test_of_several_replicas_the_first_is_shown() -> None:
    ranks = [rank(n, n // 2, [("forward", 0, 1 + n % 2)]) for n in range(4)]
    found = pipeline_of(ranks, parse_layout("ddp2 pp2:gpipe mbs1"), make_workload(8, 4, precision="fp32"))
    assert [one.busy_seconds for one in found.stages] == [pytest.approx(1), pytest.approx(1)]


def test_without_traces_the_formula_is_all() -> None:
    found = pipeline_of([{"rank": n, "pipeline_rank": n, "stages": [n], "traced": None} for n in (0, 1)], LAYOUT, WORK)
    assert (found.stages, found.bubble, found.gantt) == ((), None, ())
    assert found.formula == pytest.approx(1 / 3)
