from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.plan.pricing import PricedRun
from meshwright.plan.regret import group_scores, regret_of, spearman

from .runs_by_hand import priced_run


def job(prices: list[float], measured: list[float], **cells: object) -> list[PricedRun]:
    pairs = zip(prices, measured, strict=True)
    return [priced_run(f"run-{i}", price, step_time_s=time, **cells) for i, (price, time) in enumerate(pairs)]


def test_regret_is_the_throughput_that_the_pick_loses_against_the_best_run() -> None:
    (group,) = group_scores(job([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [5.0, 4.0, 8.0, 8.0, 8.0, 8.0]))
    assert (group.pick, group.best) == ("run-0", "run-1")
    assert group.regret == pytest.approx(1 - 4 / 5)
    # the mean of 1 - 4/5, 0 and four times 1 - 4/8
    assert group.random_regret == pytest.approx((0.2 + 0 + 4 * 0.5) / 6)


def test_prices_in_the_order_of_the_measurements_have_no_regret_however_far_off() -> None:
    (group,) = group_scores(job([10.0, 20.0, 30.0, 40.0, 50.0, 60.0], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]))
    assert group.regret == 0.0
    assert group.spearman == pytest.approx(1.0)


def test_five_runs_rank_nothing() -> None:
    assert group_scores(job([1.0] * 5, [1.0] * 5)) == ()


def test_runs_that_differ_in_more_than_the_layout_are_not_ranked_together() -> None:
    rows = job([1.0] * 3, [1.0] * 3) + job([1.0] * 3, [1.0] * 3, global_batch=128)
    assert group_scores(rows) == ()


def test_timings_that_cannot_be_relied_on_do_not_count() -> None:
    rows = job([1.0] * 6, [1.0] * 6)
    assert len(group_scores(rows)) == 1
    assert group_scores([*rows[:5], priced_run("sick", 1.0, time_ok="n")]) == ()


def test_ultra_scale_is_too_noisy_to_rank() -> None:
    assert group_scores(job([1.0] * 6, [1.0] * 6, source="ultrascale")) == ()


def test_a_pick_that_ran_out_of_memory_is_seen_though_it_has_no_time() -> None:
    rows = job([2.0] * 6, [2.0] * 6)
    (group,) = group_scores([*rows, priced_run("too-big", 1.0, verdict="fits", oom="y", step_time_s="")])
    assert (group.choice, group.pick_out_of_memory) == ("too-big", True)
    (group,) = group_scores([*rows, priced_run("too-big", 1.0, verdict="does not fit", oom="y", step_time_s="")])
    assert (group.choice, group.pick_out_of_memory) == ("run-0", False)


def test_the_regret_of_all_jobs_is_their_mean_and_worst() -> None:
    good = job([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0] * 6)
    bad = job([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 1.0, 2.0, 2.0, 2.0, 2.0], global_batch=128)
    groups = group_scores([*good, *bad])
    assert [group.regret for group in groups] == [0.5, 0.0]
    together = regret_of(groups)
    assert together is not None
    assert (together.groups, together.mean, together.worst) == (2, 0.25, 0.5)
    assert regret_of(()) is None


def test_spearman_of_the_textbook_example() -> None:
    # IQ against hours of television a week: https://en.wikipedia.org/wiki/Spearman%27s_rank_correlation_coefficient
    iq = np.array([106, 100, 86, 101, 99, 103, 97, 113, 112, 110], dtype=float)
    hours = np.array([7, 27, 2, 50, 28, 29, 20, 12, 6, 17], dtype=float)
    assert spearman(iq, hours) == pytest.approx(-29 / 165)


def test_equal_values_share_their_rank() -> None:
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, squares 4.5 and 5
    assert spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(4.5 / 22.5**0.5)


def test_a_constant_has_no_rank_correlation() -> None:
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=20, unique=True))
def test_rank_correlation_ignores_any_growing_transformation(values: list[int]) -> None:
    a = np.array(values, dtype=float)
    assert spearman(a, np.log(a)) == pytest.approx(1.0)
    assert spearman(a, -a) == pytest.approx(-1.0)
