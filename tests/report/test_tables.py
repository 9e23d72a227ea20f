"""The numbers under the charts: parts add up, units suit, nothing that JSON or a chart could not hold."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from meshwright.bench.result import Activity, Bench, Spread
from meshwright.report.study import make_study
from meshwright.report.tables import Tables, make_tables, size_unit, time_unit
from tests.report.example import GIB, bench, done


def tables(found: Bench) -> Tables:
    return make_tables(make_study([("run", found)]))


def sums(records: list[dict[str, Any]]) -> dict[str, float]:
    """The values of each layout added up."""
    total: dict[str, float] = defaultdict(float)
    for record in records:
        total[record["name"]] += record["value"]
    return dict(total)


def test_the_parts_of_a_step_add_up_to_its_median() -> None:
    found = tables(bench())
    assert sums(found.records["phases"]) == pytest.approx({row["name"]: row["step"] for row in found.records["rows"]})
    parts = {r["part"]: r["value"] for r in found.records["phases"] if r["name"] == "ddp4"}
    # 100 ms: 30 % forward, 55 % backward, 10 % optimizer.
    assert parts == pytest.approx({"forward": 30, "backward": 55, "optimizer": 10, "rest": 5})


def test_phases_of_a_slower_traced_step_are_scaled_to_the_median() -> None:
    row = replace(done("ddp4", 0.1, 1.0), phases={"optimizer": 0.02, "reduce": 0.02, "forward": 0.16})
    found = tables(bench(rows=(row,))).records["phases"]
    assert [(r["part"], r["value"]) for r in found] == [("forward", 80.0), ("optimizer", 10.0), ("reduce", 10.0)]


def test_a_row_without_phases_is_one_bar() -> None:
    (part,) = tables(bench(rows=(replace(done("ddp4", 0.1, 1.0), phases={}),))).records["phases"]
    assert (part["part"], part["value"]) == ("rest", 100.0)


def test_the_parts_of_memory_add_up_to_the_peak() -> None:
    found = tables(bench())
    assert found.memory.name == "GiB"
    assert sums(found.records["memory"])["fsdp4"] == pytest.approx(3.8)


def test_overlap_is_counted_once() -> None:
    # Of 100 ms: computing 70, of that 10 beside communication; 20 exposed; 10 idle.
    row = replace(done("ddp4", 0.1, 1.0), activity=Activity(0.07, 0.03, 0.01, 0.02, 0.01))
    found = tables(bench(rows=(row,))).records["activity"]
    assert [round(record["value"], 9) for record in found] == [60, 10, 20, 10]


def test_the_difference_is_relative_to_the_baseline_of_the_same_step() -> None:
    base = replace(done("ddp4", 0.1, 1.0), loss=(4.0, 2.0))
    other = replace(done("tp4", 0.2, 1.0), loss=(4.0, 2.5, 1.0), grad_norm=(1.0,))
    found = [r for r in tables(bench(rows=(base, other))).records["curves"] if r["name"] == "tp4"]
    assert [(r["step"], r["loss"], r["difference"], r["norm"]) for r in found] == [
        (1, 4.0, 0.0, 1.0), (2, 2.5, 0.25, None), (3, 1.0, None, None)
    ]  # fmt: skip


def test_one_process_is_the_reference_where_it_ran() -> None:
    rows = [
        replace(done(name, 0.1, 1.0, ranks=ranks), loss=(loss,))
        for name, ranks, loss in (("ddp4", 4, 3.0), ("one process", 1, 2.0))
    ]
    found = {r["name"]: r["difference"] for r in tables(bench(rows=tuple(rows))).records["curves"] if r["step"] == 1}
    assert found == {"ddp4": 0.5, "one process": 0.0}


def test_several_runs_have_a_baseline_each() -> None:
    rows = (replace(done("ddp4", 0.1, 1.0), loss=(4.0,)), replace(done("tp4", 0.2, 1.0), loss=(2.0,)))
    study = make_study([("a", bench(rows=rows)), ("b", bench(rows=rows[1:], baseline="tp4"))])
    found = {r["name"]: r["difference"] for r in make_tables(study).records["curves"] if r["step"] == 1}
    assert found == {"a: ddp4": 0.0, "a: tp4": -0.5, "b: tp4": 0.0}


def test_the_error_of_a_prediction_is_relative_to_the_measurement() -> None:
    (row,) = tables(bench(rows=(done("ddp4", 0.1, 1.0, predicted=0.12),))).records["rows"]
    assert row["error"] == pytest.approx(0.2)


def test_stages_are_sorted_by_rank_and_busy_is_what_is_not_idle() -> None:
    found = [r for r in tables(bench()).records["stages"] if r["name"] == "pp4:gpipe"]
    assert [record["rank"] for record in found] == [0, 1, 2, 3]
    assert all(record["busy"] + record["idle"] == pytest.approx(1) for record in found)
    assert found[0]["formula"] == pytest.approx(1 - 0.273)


@pytest.mark.parametrize(
    ("seconds", "unit"), [([0.0005], "µs"), ([0.0005, 0.002], "ms"), ([9.9], "ms"), ([0.1, 12.0], "s"), ([], "µs")]
)
def test_times_have_the_unit_of_the_longest(seconds: list[float], unit: str) -> None:
    assert time_unit(seconds).name == unit


@pytest.mark.parametrize(
    ("sizes", "unit"),
    [
        ([1.0], "B"),
        ([3000.0], "KiB"),
        ([GIB], "MiB"),
        ([2 * GIB], "GiB"),
        ([5000 * GIB], "TiB"),
        ([math.nan, 5.0], "B"),
    ],
)
def test_sizes_have_the_unit_of_the_largest(sizes: list[float], unit: str) -> None:
    assert size_unit(sizes).name == unit


def test_numbers_that_are_not_finite_are_left_out() -> None:
    bad = math.nan
    row = replace(
        done("ddp4", 0.1, 1.0, predicted=0.1), loss=(1.0, bad, math.inf), grad_norm=(bad,), tokens_per_second=bad,
        phases={"forward": bad, "backward": 0.05}, memory_parts={"parameters": bad},
        activity=Activity(bad, bad, bad, bad, bad), step=Spread(0.1, bad, math.inf),
    )  # fmt: skip
    found = tables(bench(rows=(row,))).records
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert sums(found["phases"]) == pytest.approx({"ddp4": 100})
