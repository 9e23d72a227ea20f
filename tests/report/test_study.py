"""Rows under names that differ, the Pareto front, and when runs may be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.bench.result import Spread
from meshwright.report.study import make_study, same_within_noise
from tests.report.example import GIB, WORK, bench, done, rows


def test_measured_rows_come_first_and_fastest_first() -> None:
    study = make_study([("run", bench())])
    times = [entry.step.median for entry in study.measured]
    assert times == sorted(times)
    assert [entry.place for entry in study.entries] == [1, 2, 3, 4, 5, 6, None, None, None]
    assert [entry.name for entry in study.entries[6:]] == ["tp4 mbs32", "tp8", "cp4:ring"]
    assert [entry.name for entry in study.entries if entry.is_baseline] == ["ddp4"]


def test_the_front_by_hand() -> None:
    # (seconds, GiB): b beats nobody on the front, c equals a, d is slower and larger than a.
    points = {"a": (1.0, 5.0), "b": (2.0, 3.0), "c": (1.0, 5.0), "d": (1.5, 5.0), "e": (3.0, 3.0), "f": (4.0, 1.0)}
    study = make_study([("run", bench(rows=tuple(done(name, *point) for name, point in points.items())))])
    assert study.front == {"a", "b", "c", "f"}


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=12))
def test_every_layout_is_on_the_front_or_beaten_by_one_that_is(points: list[tuple[int, int]]) -> None:
    study = make_study([("run", bench(rows=tuple(done(str(i), s, m) for i, (s, m) in enumerate(points))))])
    front = [points[int(name)] for name in study.front]
    for index, (seconds, size) in enumerate(points):
        beaten = any(s <= seconds and m <= size and (s, m) != (seconds, size) for s, m in front)
        assert beaten == (str(index) not in study.front)


def test_equal_labels_get_different_names() -> None:
    row = done("ddp4", 0.1, 1.0)
    study = make_study([("run", bench(rows=(row, replace(row, layout="ddp4 mbs2"), replace(row, layout="ddp4 mbs2"))))])
    assert {entry.name for entry in study.entries} == {"ddp4 mbs8", "ddp4 mbs2", "ddp4 mbs2 (2)"}
    assert sum(entry.is_baseline for entry in study.entries) == 1


def test_rows_of_several_runs_open_with_the_run() -> None:
    study = make_study([("a", bench(rows=rows()[:1])), ("b", bench(rows=rows()[:1]))])
    assert [entry.name for entry in study.entries] == ["a: ddp4", "b: ddp4"]
    assert [entry.place for entry in study.entries] == [1, 2]


@pytest.mark.parametrize(
    ("what", "value"),
    [("model", "other"), ("seq_len", 512), ("global_batch", 64), ("precision", "fp32"), ("optimizer", "sgd")],
)
def test_runs_of_different_work_are_placed_and_fronted_apart(what: str, value: object) -> None:
    slow = (done("ddp4", 0.2, 20.0),)
    study = make_study([("a", bench(rows=rows()[:1])), ("b", bench(rows=slow, work=WORK | {what: value}))])
    (difference,) = study.differences
    assert difference.what == what
    assert dict(difference.values) == {"a": str(WORK[what]), "b": str(value)}
    assert [entry.place for entry in study.entries] == [1, 1]
    assert study.front == {"a: ddp4", "b: ddp4"}


@pytest.mark.parametrize("what", ["steps", "repeats"])
def test_runs_of_the_same_work_may_differ_in_the_rest(what: str) -> None:
    assert make_study([("a", bench()), ("b", bench(work=WORK | {what: "other"}))]).differences == ()


def test_what_is_not_said_is_not_the_same() -> None:
    work = {key: value for key, value in WORK.items() if key != "precision"}
    (difference,) = make_study([("a", bench()), ("b", bench(work=work))]).differences
    assert difference.values == (("a", "bf16"), ("b", "not said"))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_row_with_an_impossible_time_is_not_measured(bad: float) -> None:
    row = replace(done("x", 0.1, 1.0), step=Spread(bad, bad, bad))
    study = make_study([("run", bench(rows=(row, replace(done("y", 0.2, 1.0), memory_bytes=bad))))])
    assert [(entry.name, entry.place) for entry in study.entries] == [("y", 1), ("x", None)]
    assert study.measured[0].memory is None


def test_noise_is_overlapping_ranges() -> None:
    one = Spread(1.0, 0.9, 1.1)
    assert same_within_noise(one, Spread(1.2, 1.1, 1.3))
    assert same_within_noise(Spread(1.2, 1.1, 1.3), one)
    assert not same_within_noise(one, Spread(1.2, 1.11, 1.3))


def test_the_example_has_rows_of_every_kind() -> None:
    kinds = {row.status for row in rows()}
    assert {"done", "out of memory", "failed", "refused"} <= kinds
    assert max(row.memory_bytes or 0 for row in rows()) == 10 * GIB
