"""The order of a bench's runs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from meshwright.bench.order import BETWEEN, order_runs


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
def test_every_row_runs_as_often_as_asked_and_the_baseline_between_them(rows: int, repeats: int, seed: int) -> None:
    labels = [f"row {n}" for n in range(rows)]
    runs = order_runs(labels, "row 0", repeats, seed)
    counts = Counter(run.label for run in runs)
    assert all(counts[label] == repeats for label in labels[1:])
    assert runs[0].label == runs[-1].label == "row 0"
    gaps = [at for at, run in enumerate(runs) if run.label == "row 0"]
    assert all(after - before <= BETWEEN + 1 for before, after in pairwise(gaps))
    for label in labels:
        assert [run.repeat for run in runs if run.label == label] == list(range(counts[label]))


def test_repeats_come_in_other_orders() -> None:
    labels = [f"row {n}" for n in range(9)]
    runs = [run.label for run in order_runs(labels, "row 0", 2, 0) if run.label != "row 0"]
    assert runs[:8] != runs[8:]
    assert sorted(runs[:8]) == sorted(runs[8:])


def test_the_single_process_runs_once_before_all_others() -> None:
    runs = order_runs(["one", "a", "b"], "a", 3, 0, first=["one"])
    assert [run.label for run in runs].count("one") == 1
    assert runs[0].label == "one"
