"""A workload with possible numbers, or a refusal that names the legal ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.spec.errors import WorkloadError
from meshwright.spec.workload import OPTIMIZERS, PRECISIONS, STATES, Tuning, Workload, make_workload, validate_workload


def test_tokens_are_sequences_times_length() -> None:
    assert make_workload(2048, 1536).tokens == 3_145_728


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.sampled_from(PRECISIONS[1:]),
    st.sampled_from(OPTIMIZERS),
    st.sampled_from(STATES),
)
def test_every_combination_of_known_names_is_a_workload(
    seq_len: int, batch: int, precision: str, optimizer: str, states: str
) -> None:
    made = make_workload(seq_len, batch, precision=precision, optimizer=optimizer, states=states)
    assert (made.seq_len, made.global_batch, made.precision) == (seq_len, batch, precision)


@pytest.mark.parametrize(
    ("options", "said", "legal"),
    [
        ({"seq_len": 0}, "seq_len is 0", "from 1"),
        ({"global_batch": -8}, "global_batch is -8", "from 1"),
        ({"seq_len": 2048.0}, "seq_len is 2048.0", "whole number"),
        ({"seq_len": True}, "seq_len is True", "whole number"),
        ({"global_batch": 10**30}, "global_batch is 1000", "1073741824"),
        ({"precision": "bf61"}, "Unknown precision 'bf61'", "bf16"),
        ({"precision": "int4"}, "Unknown precision", "fp32"),
        ({"optimizer": "adam"}, "Unknown optimizer 'adam'", "adamw"),
        ({"states": "mixed-fp32"}, "Unknown states", "mixed"),
        ({"implementation": "jit"}, "Unknown implementation", "compiled"),
        ({"causal": "yes"}, "causal is 'yes'", "true"),
        ({"precision": "fp32", "states": "pure"}, "In fp32", "mixed"),
        ({"tuning": Tuning("qlora")}, "Unknown tuning", "lora"),
        ({"tuning": Tuning("lora", lora_rank=0)}, "lora_rank is 0", "from 1"),
        ({"tuning": Tuning("lora", lora_targets=())}, "trains nothing", "q"),
        ({"tuning": Tuning("lora", lora_targets=("q", "qkv"))}, "Unknown lora target", "q"),
        ({"tuning": Tuning("lora", lora_targets=("q", "q"))}, "twice", "q"),
        ({"tuning": Tuning("frozen", frozen_layers=-1)}, "frozen_layers is -1", "from 0"),
        ({"tuning": Tuning("full", frozen_layers=3)}, "does not apply", "frozen"),
    ],
)
def test_an_impossible_workload_is_refused_with_the_legal_values(
    options: dict[str, Any], said: str, legal: str
) -> None:
    numbers = {"seq_len": 2048, "global_batch": 8} | options
    with pytest.raises(WorkloadError) as caught:
        validate_workload(Workload(**numbers))
    assert said in str(caught.value)
    assert any(legal in value for value in caught.value.legal)


def test_an_unknown_field_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(WorkloadError, match="'optimiser'") as caught:
        make_workload(2048, 8, optimiser="adamw")
    assert caught.value.legal == ("optimizer",)


@given(st.text(max_size=60))
def test_any_optimizer_name_is_known_or_refused(name: str) -> None:
    if name in OPTIMIZERS:
        assert make_workload(8, 8, optimizer=name).optimizer == name
    else:
        with pytest.raises(WorkloadError):
            make_workload(8, 8, optimizer=name)
