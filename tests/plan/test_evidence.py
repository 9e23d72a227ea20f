"""Published runs beside their prices."""

from __future__ import annotations

import pytest

from meshwright.plan.evidence import LEAST, evidence
from meshwright.plan.history import runs
from meshwright.plan.pricing import price, read_nouns
from meshwright.plan.scored import is_scored

TIMED = [run for run in runs() if run.time_ok and run.step_seconds and is_scored(run)]
READ, UNPRICED = read_nouns(TIMED[:200])
PRICEABLE = [run for run, _ in READ]


def test_a_run_is_priced_as_the_backtest_prices_it() -> None:
    found = evidence(PRICEABLE[:8], show=8)
    alone = price(read_nouns(PRICEABLE[:8])[0])
    assert [near.predicted_seconds for near in found.shown] == pytest.approx([row.step_seconds for row in alone])
    for near in found.shown:
        assert near.predicted_seconds is not None
        assert near.run.step_seconds is not None
        assert near.error == pytest.approx(near.predicted_seconds / near.run.step_seconds - 1)


def test_the_median_error_is_that_of_all_runs_and_not_of_those_shown() -> None:
    found = evidence(PRICEABLE[:9], show=2)
    every = sorted(abs(near.error or 0.0) for near in evidence(PRICEABLE[:9], show=9).shown)
    assert len(found.shown) == 2
    assert found.error is not None
    assert found.error.rows == 9
    assert found.error.median == pytest.approx(every[4])


def test_few_runs_say_nothing_of_an_error() -> None:
    assert evidence(PRICEABLE[: LEAST - 1]).error is None
    assert evidence([]).shown == ()


def test_a_run_of_which_too_little_is_stated_is_shown_without_a_price() -> None:
    _, unpriced = read_nouns(runs())
    [near] = evidence([unpriced[0].run]).shown
    assert near.predicted_seconds is None
    assert near.error is None
