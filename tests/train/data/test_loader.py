"""The loader: the global batch, split exactly, and resumed to the sample."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.train.batch import IGNORED, Batch
from meshwright.train.data import DataError, Dataset, Loader, batch_hash

from .corpora import letters


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """37 samples of 4 tokens."""
    return letters(tmp_path_factory.mktemp("letters"), 37)


def rows(batches: list[Batch]) -> list[str]:
    """Each sequence as its text."""
    return [bytes(row).decode() for batch in batches for row in batch.tokens.tolist()]


def splits() -> st.SearchStrategy[tuple[int, int, int]]:
    """(data ranks, micro-batch, micro-batches) with at most 36 samples a step."""
    sizes = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))
    return sizes.filter(lambda s: s[0] * s[1] * s[2] <= 36)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(splits(), st.integers(0, 4))
def test_ranks_and_micro_batches_share_out_the_global_batch(
    samples: Dataset, sizes: tuple[int, int, int], step: int
) -> None:
    ranks, micro, count = sizes
    batch = ranks * micro * count
    loaders = [Loader(samples, batch, ranks, rank, micro, prefetch=0) for rank in range(ranks)]
    given = [loader.batches(step) for loader in loaders]
    assert all([len(b.tokens) for b in batches] == [micro] * count for batches in given)
    together = [row for batches in given for row in rows(batches)]
    # One process that takes sample after sample, in the order of the whole data set.
    order = np.concatenate([samples.order.ids(37 * epoch, 37) for epoch in range(6)])
    expected = [f"{i:04d}" for i in order[step * batch : (step + 1) * batch]]
    assert together == expected


def test_an_epoch_of_steps_takes_every_sample_once_and_the_next_batch_goes_on(samples: Dataset) -> None:
    with Loader(samples, 10) as loader:
        taken = [row for _ in range(11) for row in rows(next(loader))]
    every = sorted(f"{i:04d}" for i in range(37))
    assert sorted(taken[:37]) == every
    assert sorted(taken[37:74]) == every
    assert taken[:37] != taken[37:74]


def test_ranks_of_one_data_rank_get_the_same_numbers(samples: Dataset) -> None:
    a, b, other = (Loader(samples, 12, 3, rank, 2, prefetch=0) for rank in (1, 1, 2))
    assert batch_hash(a.batches(2)) == batch_hash(b.batches(2)) != batch_hash(other.batches(2))


@pytest.mark.parametrize(("ranks", "micro", "batch"), [(1, 6, 12), (3, 2, 12), (2, 1, 6), (4, 2, 8)])
def test_a_run_resumes_to_the_sample_under_another_split(samples: Dataset, ranks: int, micro: int, batch: int) -> None:
    with Loader(samples, 12, 2, 0, 3) as before:
        for _ in range(5):  # 60 samples: in the middle of the second epoch, with more read ahead
            next(before)
        state = before.state_dict()
    after = [Loader(samples, batch, ranks, rank, micro) for rank in range(ranks)]
    taken: list[str] = []
    for loader in after:
        loader.load_state_dict(dict(state))
    for _ in range(3):
        for loader in after:
            taken += rows(next(loader))
    for loader in after:
        loader.close()
    order = np.concatenate([samples.order.ids(37 * epoch, 37) for epoch in range(4)])
    assert taken == [f"{i:04d}" for i in order[60 : 60 + 3 * batch]]


def test_a_loader_that_has_read_ahead_can_be_set_back(samples: Dataset) -> None:
    with Loader(samples, 6) as loader:
        next(loader)
        state = loader.state_dict()
        second = rows(next(loader))
        next(loader)
        loader.load_state_dict(state)
        assert rows(next(loader)) == second


def test_the_state_is_the_same_on_every_rank(samples: Dataset) -> None:
    states = []
    for rank in range(3):
        with Loader(samples, 6, 3, rank) as loader:
            next(loader)
            states.append(loader.state_dict())
    assert states == [states[0]] * 3
    assert states[0]["consumed"] == 6


@pytest.mark.parametrize("changed", [{"seq_len": 5}, {"seed": 1}, {"shuffle": False}, {"validation_share": 0.1}])
def test_a_position_in_other_samples_is_refused(tmp_path: Path, samples: Dataset, changed: dict[str, Any]) -> None:
    state = Loader(samples, 4).state_dict()
    data = letters(tmp_path, 37)
    Loader(data, 4).load_state_dict(state)  # the same text in another file is the same data
    other = letters(tmp_path, 37, **changed)
    with pytest.raises(DataError, match="other data"):
        Loader(other, 4).load_state_dict(state)


@pytest.mark.parametrize("state", [{}, {"consumed": -1, "data": ""}, {"consumed": "7", "data": ""}])
def test_a_damaged_position_is_refused(samples: Dataset, state: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="none of ours"):
        Loader(samples, 4).load_state_dict(state)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((12, 5, 0, None), r"12 is not a multiple of 10.*Legal: global batch 10, global batch 20"),
        ((12, 2, 0, 5), r"12 is not a multiple of 10: 2 data ranks × micro-batches of 5"),
        ((38, 1, 0, None), r"37 samples of 4 tokens, fewer than one global batch of 38"),
        ((12, 2, 2, None), r"Data rank 2 of 2\. Legal: 0 to 1"),
        ((12, 0, 0, None), r"Data rank 0 of 0"),
        ((12, 2, 0, 0), r"micro-batch of 0"),
        ((0, 1, 0, 1), r"global batch of 0"),
    ],
)
def test_a_batch_that_does_not_split_is_refused(samples: Dataset, sizes: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Loader(samples, *sizes)


def test_targets_are_counted_after_masking_alike_under_every_split(samples: Dataset) -> None:
    def mask(index: int, targets: np.ndarray) -> np.ndarray:
        return np.arange(len(targets)) >= index % 5  # sample i loses its first i mod 5 targets

    one = Loader(samples, 12, mask_targets=mask, prefetch=0)
    ids = samples.order.ids(24, 12)
    assert one.target_tokens(2) == sum(4 - int(i) % 5 for i in ids)
    split = [Loader(samples, 12, 3, rank, 2, mask_targets=mask, prefetch=0) for rank in range(3)]
    assert sum(loader.target_tokens(2) for loader in split) == one.target_tokens(2)
    targets = torch.cat([batch.targets for loader in split for batch in loader.batches(2)])
    assert torch.equal(targets, one.batches(2)[0].targets)
    assert (targets == IGNORED).sum(dim=1).tolist() == [int(i) % 5 for i in ids]
    for loader in [one, *split]:
        step = [next(loader) for _ in range(3)][-1]
        assert loader.counted == sum(batch.target_tokens for batch in step) == loader.target_tokens(2)


def test_without_masks_every_token_is_a_target(samples: Dataset) -> None:
    loader = Loader(samples, 12, 3, 1, 2, prefetch=0)
    assert loader.target_tokens(0) == 16 == sum(batch.target_tokens for batch in loader.batches(0))


def test_a_mask_of_the_wrong_kind_is_refused(samples: Dataset) -> None:
    with (
        Loader(samples, 4, mask_targets=lambda _, targets: targets) as loader,
        pytest.raises(DataError, match=r"mask_targets gave int64 \[4\]"),
    ):
        next(loader)


def test_what_fails_while_reading_ahead_is_raised_in_its_step_and_every_later_one(tmp_path: Path) -> None:
    def mask(index: int, targets: np.ndarray) -> np.ndarray:
        if index == 7:
            raise OSError("disk gone")
        return np.ones(len(targets), dtype=bool)

    data = letters(tmp_path, 10, shuffle=False)
    with Loader(data, 2, mask_targets=mask) as loader:
        assert [rows(next(loader)) for _ in range(3)] == [["0000", "0001"], ["0002", "0003"], ["0004", "0005"]]
        for _ in range(2):
            with pytest.raises(OSError, match="disk gone"):
                next(loader)
        assert loader.consumed == 6


def data_threads() -> list[threading.Thread]:
    """Threads that read ahead."""
    return [thread for thread in threading.enumerate() if thread.name == "meshwright data"]


def test_closing_ends_the_reading_thread_and_it_can_start_again(samples: Dataset) -> None:
    loader = Loader(samples, 4)
    first = rows(next(loader))
    assert len(data_threads()) == 1
    loader.close()
    assert not data_threads()
    second = rows(next(loader))
    loader.close()
    assert first + second == rows(Loader(samples, 8, prefetch=0).batches(0))


def test_a_forgotten_loader_takes_its_thread_along(samples: Dataset) -> None:
    loader = Loader(samples, 4)
    next(loader)
    (thread,) = data_threads()
    del loader
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_a_hash_tells_apart_what_differs_in_one_number(samples: Dataset) -> None:
    (batch,) = Loader(samples, 4).batches(0)
    changed = batch.targets.clone()
    changed[3, 2] += 1
    others = [
        Batch(batch.tokens, changed, batch.positions),
        Batch(batch.tokens, batch.targets, batch.positions, torch.zeros_like(batch.tokens)),
        Batch(batch.tokens.view(2, 8), batch.targets.view(2, 8), batch.positions.view(2, 8)),
    ]
    assert batch_hash(batch) == batch_hash([Batch(batch.tokens.clone(), batch.targets, batch.positions)])
    assert len({batch_hash(b) for b in [batch, *others]}) == 4
