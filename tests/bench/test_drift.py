"""Step times with the drift of the machine taken out, by hand."""

from __future__ import annotations

import pytest

from meshwright.bench.drift import drift_factors
from meshwright.bench.order import Run

RUNS = [Run(0, "base", 0), Run(1, "a", 0), Run(2, "b", 0), Run(3, "base", 1)]


def test_a_machine_that_slows_down_does_not_make_the_later_row_slower() -> None:
    # The baseline goes from 1 to 4 s, 2 and 3 s in between, usually 2.5; a and b take half and twice as long as it.
    seconds = {0: 1.0, 1: 1.0, 2: 6.0, 3: 4.0}
    factors = drift_factors(RUNS, seconds, "base")
    assert {index: seconds[index] * factor for index, factor in factors.items()} == pytest.approx(
        {0: 2.5, 1: 1.25, 2: 5.0, 3: 2.5}
    )


def test_on_a_steady_machine_nothing_changes() -> None:
    assert drift_factors(RUNS, {0: 2.0, 1: 3.0, 2: 5.0, 3: 2.0}, "base") == dict.fromkeys(range(4), 1.0)


def test_before_the_baseline_has_run_there_is_nothing_to_compare_with() -> None:
    assert drift_factors(RUNS, {1: 3.0}, "base") == {1: 1.0}
