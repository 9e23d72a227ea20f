"""Defaults: a job that names neither sequence length nor batch gets usual ones that many layouts divide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.plan.defaults import LONGEST_SEQUENCE, choose_global_batch, choose_seq_len
from meshwright.spec.model_config import load_model
from meshwright.spec.rules.rule import divisors
from tests.plan.jobs import cluster


@pytest.mark.parametrize(
    ("name", "seq_len"), [("gpt2", 1024), ("gpt3-175b", 2048), ("llama-2-7b", 4096), ("llama-3.1-405b", 4096)]
)
def test_sequences_are_as_long_as_the_model_takes_up_to_4096(name: str, seq_len: int) -> None:
    assert choose_seq_len(load_model(name)) == seq_len <= LONGEST_SEQUENCE


@pytest.mark.parametrize(
    ("name", "tokens"),
    # GPT-3's table 2.1: 0.5 M tokens for the smallest, 2 M at 6.7e9 parameters, 3.2 M at 175e9 (Llama 2: 4 M).
    [("gpt2", 0.5e6), ("llama-2-7b", 2e6), ("gpt3-175b", 3.2e6), ("llama-2-70b", 4e6)],
)
def test_the_batch_is_within_a_factor_of_the_published_one(name: str, tokens: float) -> None:
    model = load_model(name)
    seq_len = choose_seq_len(model)
    chosen = choose_global_batch(model, cluster(64, 8), seq_len) * seq_len
    assert tokens / 1.5 <= chosen <= tokens * 1.5


@given(devices=st.integers(1, 900))
def test_on_not_too_many_devices_the_batch_is_a_multiple_of_them(devices: int) -> None:
    # 2 M tokens are 488 sequences.
    assert choose_global_batch(load_model("llama-2-7b"), cluster(devices, 1), 4096) % devices == 0


@given(power=st.integers(0, 14))
def test_data_ranks_that_are_no_more_than_the_sequences_divide_the_batch(power: int) -> None:
    batch = choose_global_batch(load_model("llama-2-7b"), cluster(2**power, 1), 4096)
    assert all(batch % data == 0 for data in divisors(2**power) if data <= batch)
