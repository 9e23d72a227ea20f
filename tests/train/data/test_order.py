"""The order of samples: every one once an epoch, and anew in each."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.train.data.order import EpochOrder, Split


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 700), st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_every_sample_comes_once_in_each_epoch(samples: int, seed: int, epoch: int) -> None:
    ids = EpochOrder(samples, seed).ids(epoch * samples, samples)
    assert sorted(ids.tolist()) == list(range(samples))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 50), st.lists(st.integers(0, 40), max_size=8))
def test_the_order_does_not_depend_on_how_it_is_asked_for(samples: int, counts: list[int]) -> None:
    order = EpochOrder(samples, seed=5)
    starts = np.cumsum([0, *counts])
    parts = [order.ids(int(start), count) for start, count in zip(starts, counts, strict=False)]
    whole = order.ids(0, sum(counts))
    assert np.array_equal(np.concatenate([*parts, np.empty(0, dtype=np.int64)]), whole)


def test_unshuffled_samples_come_in_order_again_and_again() -> None:
    assert EpochOrder(3, shuffle=False).ids(1, 7).tolist() == [1, 2, 0, 1, 2, 0, 1]


def test_epochs_and_seeds_have_different_orders() -> None:
    rows = [EpochOrder(64, seed).ids(64 * epoch, 64).tolist() for seed in range(4) for epoch in range(4)]
    assert all(a != b for a, b in itertools.combinations(rows, 2))


def test_small_epochs_have_every_order_about_equally_often() -> None:
    """Chi-square of 4! = 24 orders over 2,400 epochs: 23 degrees of freedom, beyond 49.7 in one case of 1,000."""
    order = EpochOrder(4, seed=1)
    seen = Counter(tuple(order.ids(4 * epoch, 4).tolist()) for epoch in range(2400))
    assert len(seen) == 24
    assert sum((count - 100) ** 2 / 100 for count in seen.values()) < 49.7


def test_neighbours_in_a_shuffled_epoch_are_not_related() -> None:
    ids = EpochOrder(100_000, seed=3).ids(0, 100_000).astype(float)
    for lag in (1, 2, 16):
        assert abs(np.corrcoef(ids[:-lag], ids[lag:])[0, 1]) < 0.015  # 4.7 standard errors


def test_an_order_of_a_trillion_samples_takes_no_memory() -> None:
    ids = EpochOrder(10**12, seed=3).ids(10**12 - 50, 100)
    assert ids.min() >= 0
    assert ids.max() < 10**12
    assert len(set(ids.tolist())) == 100


@settings(deadline=None)
@given(st.integers(2, 400), st.data())
def test_a_split_gives_every_window_to_one_side(total: int, data: st.DataObject) -> None:
    held_out = data.draw(st.integers(1, total - 1))
    split = Split(total, held_out)
    training = [split.training(i) for i in range(total - held_out)]
    validation = [split.validation(i) for i in range(held_out)]
    assert sorted(training + validation) == list(range(total))
    assert training == sorted(training)
    gaps = np.diff(validation)
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize(("total", "held_out", "windows"), [(10, 2, [4, 9]), (7, 2, [2, 6]), (5, 1, [4])])
def test_held_out_windows_are_spread_evenly(total: int, held_out: int, windows: list[int]) -> None:
    assert [Split(total, held_out).validation(i) for i in range(held_out)] == windows
