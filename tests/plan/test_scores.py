from __future__ import annotations

import pytest

from meshwright.plan.scores import (
    error_score,
    memory_error,
    outcome,
    scores_by,
    source_of,
    time_error,
    verdicts_by_outcome,
)

from .runs_by_hand import made_run, priced_run


def test_an_error_score_is_the_textbook_statistics_of_its_errors() -> None:
    score = error_score([0.1, -0.3, 0.2, 0.0, -0.1])
    assert score.rows == 5
    assert score.mape == pytest.approx(0.14)
    assert score.median == pytest.approx(0.1)
    assert score.bias == pytest.approx(-0.02)
    assert score.worst == pytest.approx(0.3)
    # absolute errors 0, 0.1, 0.1, 0.2, 0.3; the 90th percentile lies 0.6 of the way from the fourth to the fifth
    assert score.p90 == pytest.approx(0.26)


def test_a_price_of_three_quarters_is_25_percent_too_fast() -> None:
    assert time_error(priced_run("a", seconds=1.5, step_time_s=2.0)) == pytest.approx(-0.25)


def test_an_unreliable_timing_has_no_error_but_its_memory_has() -> None:
    row = priced_run("a", seconds=1.5, gib=30, step_time_s=2.0, time_ok="n", peak_mem_gib=20)
    assert time_error(row) is None
    assert memory_error(row) == pytest.approx(0.5)


def test_memory_that_was_not_measured_has_no_error() -> None:
    assert memory_error(priced_run("a", seconds=1.0)) is None


def test_scores_are_kept_apart_by_source_and_the_largest_comes_first() -> None:
    rows = [priced_run(str(i), seconds=1.1, source=source) for i, source in enumerate(("one", "two", "two"))]
    scores = scores_by(rows, source_of, time_error)
    assert [(name, score.rows) for name, score in scores.items()] == [("two", 2), ("one", 1)]


@pytest.mark.parametrize(("cell", "happened"), [("y", "out of memory"), ("n", "ran"), ("fail", "failed"), ("", None)])
def test_what_happened_is_what_the_row_states(cell: str, happened: str | None) -> None:
    assert outcome(made_run("a", oom=cell)) == happened


def test_a_source_that_states_only_failures_ran_wherever_it_has_a_time() -> None:
    assert outcome(made_run("a", source="aleph_layouts", oom="")) == "ran"
    assert outcome(made_run("a", source="aleph_layouts", oom="", step_time_s="")) is None


def test_failures_are_not_counted_as_out_of_memory() -> None:
    rows = [
        priced_run("a", 1.0, verdict="does not fit", oom="y"),
        priced_run("b", 1.0, verdict="fits", oom="y"),
        priced_run("c", 1.0, verdict="fits", oom="n"),
        priced_run("d", 1.0, verdict="does not fit", oom="fail"),
        priced_run("e", 1.0, verdict="fits", oom=""),
    ]
    assert verdicts_by_outcome(rows) == {
        "ran": {"fits": 1},
        "out of memory": {"does not fit": 1, "fits": 1},
        "failed": {"does not fit": 1},
    }
