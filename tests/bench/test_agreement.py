"""The plan beside the measurement, by hand."""

from __future__ import annotations

import pytest

from meshwright.bench.agreement import agreement, with_places
from meshwright.bench.result import DONE, FAILED, ONE_PROCESS, Predicted, Row, Spread


def row(label: str, measured: float | None, predicted: float | None, status: str = DONE) -> Row:
    return Row(
        label=label,
        layout=label,
        ranks=2,
        status=status,
        step=None if measured is None else Spread(measured, measured, measured),
        memory_bytes=None if measured is None else 100.0,
        predicted=None if predicted is None else Predicted(predicted, 1.0, 80.0, "fits", 0.0),
    )


ROWS = [
    row("a", 1.0, 1.1),
    row("b", 2.0, 1.0),
    row("c", 4.0, 3.0),
    row("crashed", None, 0.1, FAILED),
    row("not priced", 0.5, None),
    row(ONE_PROCESS, 0.1, 9.0),
]


def test_places_count_only_rows_that_were_measured_and_priced() -> None:
    found = {one.label: (one.measured_place, one.predicted_place) for one in with_places(ROWS)}
    assert found["a"] == (1, 2)
    assert found["b"] == (2, 1)
    assert found["c"] == (3, 3)
    assert found["crashed"] == found["not priced"] == found[ONE_PROCESS] == (None, None)


def test_regret_is_the_throughput_lost_by_the_row_that_is_predicted_fastest() -> None:
    found = agreement(ROWS)
    assert found is not None
    assert found.rows == 3
    assert found.regret == pytest.approx(0.5)  # b takes 2 s where a takes 1
    # ranks 1 2 3 against 2 1 3: 1 - 6·(1 + 1 + 0) / (3·8)
    assert found.spearman == pytest.approx(0.5)
    assert found.median_step_error == pytest.approx(0.25)  # of 0.1, 0.5, 0.25
    assert found.median_memory_error == pytest.approx(0.2)


def test_without_a_priced_row_there_is_no_agreement() -> None:
    assert agreement([row("a", 1.0, None)]) is None
