from __future__ import annotations

import pytest

from meshwright.plan.history import runs
from meshwright.plan.pricing import price, read_nouns
from meshwright.plan.run_groups import run_groups
from meshwright.plan.run_nouns import nouns_of_run

from .runs_by_hand import made_run


def test_a_run_costs_the_same_alone_as_among_others() -> None:
    read, _ = read_nouns(runs()[::20])
    for together in price(read):
        (alone,) = price([(together.run, together.nouns)])
        assert together.step_seconds == pytest.approx(alone.step_seconds, rel=1e-12)
        assert together.peak_bytes == pytest.approx(alone.peak_bytes, rel=1e-12)
        assert together.verdict == alone.verdict


def test_sizes_batches_and_node_counts_are_columns_of_one_group() -> None:
    made = [
        made_run("a"),
        made_run("b", layers=48, hidden=4096, heads=32, vocab=32000),
        made_run("c", global_batch=128, gpus=16, dp=16),
    ]
    (group,) = run_groups([nouns_of_run(run) for run in made])
    assert group.rows.tolist() == [0, 1, 2]
    assert list(group.model.layers) == [24, 48, 24]
    assert list(group.workload.global_batch) == [64, 64, 128]


def test_other_architectures_devices_and_sequence_lengths_are_other_groups() -> None:
    made = [
        made_run("a"),
        made_run("b", gpu="H100"),
        made_run("c", seq_len=4096),
        made_run("d", model_name="llama-7b"),
        made_run("e"),
    ]
    groups = run_groups([nouns_of_run(run) for run in made])
    assert [group.rows.tolist() for group in groups] == [[0, 4], [1], [2], [3]]


def test_every_run_of_the_catalogue_is_in_exactly_one_group() -> None:
    read, _ = read_nouns(runs()[::5])
    rows = sorted(int(row) for group in run_groups([nouns for _, nouns in read]) for row in group.rows)
    assert rows == list(range(len(read)))
