"""Synthetic tokens: a function of seed and sample, uniform or with an entropy known beforehand."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from meshwright.train.batch import IGNORED
from meshwright.train.data import DataConfig, DataError, Dataset, Loader, batch_hash, open_dataset

SOURCES = ("synthetic", "synthetic:chain")


def synthetic(source: str, vocab: int = 50, **options: Any) -> Dataset:
    """A synthetic data set."""
    return open_dataset(DataConfig(source=source, **{"seq_len": 64, **options}), vocab=vocab)


@pytest.mark.parametrize("source", SOURCES)
def test_samples_are_a_function_of_seed_and_number(source: str) -> None:
    a, b, other = synthetic(source), synthetic(source), synthetic(source, seed=1)
    a.sample(3)
    assert np.array_equal(a.sample(10**9).tokens, b.sample(10**9).tokens)
    assert not np.array_equal(a.sample(4).tokens, a.sample(5).tokens)
    assert not np.array_equal(a.sample(4).tokens, other.sample(4).tokens)
    assert np.array_equal(a.sample(4).tokens[1:], a.sample(4).targets[:-1])


@pytest.mark.parametrize("source", SOURCES)
def test_every_token_of_the_vocabulary_comes_about_equally_often(source: str) -> None:
    """51,200 tokens over 50 ids; the chain's jumps are one in ten, so its counts vary about 19 times as much."""
    data = synthetic(source)
    seen = np.bincount(np.concatenate([data.sample(i).tokens for i in range(800)]), minlength=50)
    assert len(seen) == 50
    factor = 1 if source == "synthetic" else 19
    assert ((seen - 1024) ** 2 / 1024).sum() < 86 * factor  # chi-square, 49 degrees of freedom, 1 in 1,000


def test_a_chain_has_the_entropy_that_it_says() -> None:
    data = synthetic("synthetic:chain", vocab=8)
    pairs = Counter()
    for i in range(800):
        sample = data.sample(i)
        pairs.update(zip(sample.tokens.tolist(), sample.targets.tolist(), strict=True))
    total = pairs.total()
    before = Counter()
    for (token, _), count in pairs.items():
        before[token] += count
    measured = -sum(count / total * math.log(count / before[token]) for (token, _), count in pairs.items())
    # 0.9 + 0.1/8 for the next of the cycle, 0.1/8 for each of seven others
    expected = -(0.9125 * math.log(0.9125) + 7 * 0.0125 * math.log(0.0125))
    assert measured == pytest.approx(expected, rel=0.03)
    assert f"no loss below {expected:.4f}" in data.describe()
    followers = {token: max((n, b) for (a, b), n in pairs.items() if a == token)[1] for token in range(8)}
    assert sorted(followers.values()) == list(range(8))  # each token is followed by another one: a cycle


def test_isolated_synthetic_documents_start_anew() -> None:
    data = synthetic("synthetic", isolate_documents=True)
    numbers = set()
    for i in range(100):
        sample = data.sample(i)
        assert sample.documents is not None
        starts = np.flatnonzero(np.diff(sample.documents)) + 1
        assert (sample.positions[starts] == 0).all()
        assert (sample.targets[starts - 1] == IGNORED).all()
        numbers.add(len(starts) + 1)
    assert numbers == {1, 2, 3, 4}


def test_the_loader_splits_endless_samples_too() -> None:
    data = synthetic("synthetic")
    whole = Loader(data, 8, 1, 0, 2, prefetch=0).batches(3)
    halves = [Loader(data, 8, 2, rank, 2, prefetch=0).batches(3) for rank in range(2)]
    assert batch_hash(whole) == batch_hash([*halves[0], *halves[1]])


def test_an_unknown_kind_of_synthetic_tokens_is_refused() -> None:
    with pytest.raises(DataError, match=r"'synthetic:waves' is not known\. Legal: synthetic, synthetic:chain"):
        synthetic("synthetic:waves")


@pytest.mark.parametrize(
    "wrong",
    [{"seq_len": 0}, {"seed": -1}, {"seed": 2**63}, {"validation_share": 1.0}, {"validation_share": -0.1}],
)
def test_impossible_numbers_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(DataError, match=f"data.{name} is"):
        synthetic("synthetic", **wrong)


def test_an_empty_source_is_refused() -> None:
    for source in ("", (), ("a", "")):
        with pytest.raises(DataError, match=r"data\.source is empty"):
            DataConfig(source=source)
