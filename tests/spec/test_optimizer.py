"""Bytes a parameter are the sums of the papers and of the runtimes' manuals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.spec.errors import WorkloadError
from meshwright.spec.matrices import weight_matrices
from meshwright.spec.model import Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import OPTIMIZERS, STATES, StateBytes, make_workload

from .jobs import GPT2, LLAMA_70B, MIXTRAL

GIB = 2**30


def states(model: Model | None = None, **options: str) -> StateBytes:
    return state_bytes(make_workload(2048, 8, **options), model)


def sharded_optimizer(state: StateBytes, d: int) -> float:
    """Bytes a parameter on a rank whose optimizer part is shared by d ranks."""
    return state.parameter + state.gradient + (state.main_gradient + state.master + state.moments) / d


def test_mixed_precision_adam_is_16_bytes() -> None:
    # ZeRO, arXiv:1910.02054 section 3.1: 2 + 2 + K with K = 12.
    state = states()
    assert (state.parameter, state.gradient, state.master + state.moments) == (2, 2, 12)
    assert state.total == 16


@pytest.mark.parametrize(
    ("regime", "total"),
    [("mixed-fp32-gradients", 18), ("mixed-dual-gradients", 20), ("fp32-shards", 16), ("pure", 8)],
)
def test_other_regimes_add_up_to_the_manuals_sums(regime: str, total: float) -> None:
    assert states(states=regime).total == total


@pytest.mark.parametrize("d", [1, 2, 8, 64, 128])
def test_megatrons_distributed_optimizer(d: int) -> None:
    # docs.nvidia.com/megatron-core, "Distributed Optimizer": 4 + 16/d, 6 + 12/d, 8 + 8/d.
    assert sharded_optimizer(states(states="mixed-dual-gradients", precision="fp16"), d) == 4 + 16 / d
    assert sharded_optimizer(states(states="mixed-fp32-gradients"), d) == 6 + 12 / d
    assert sharded_optimizer(states(precision="fp32"), d) == 8 + 8 / d


def test_seven_billion_parameters_are_140_gb_and_28_9_on_128_ranks() -> None:
    state = states(states="mixed-dual-gradients", precision="fp16")
    assert 7e9 * state.total == 140e9
    assert 7e9 * sharded_optimizer(state, 128) == pytest.approx(28.9e9, rel=1e-3)


def test_one_and_a_half_billion_parameters_have_18_gb_of_adam_states() -> None:
    state = states()
    assert 1.5e9 * (state.master + state.moments) == 18e9
    assert 1.5e9 * (state.master + state.moments) / 8 == 2.25e9


def test_a_hundred_billion_parameters_are_about_one_and_a_half_tebibytes() -> None:
    assert 100e9 * states().total / 2**40 == pytest.approx(1.5, abs=0.05)


@pytest.mark.parametrize(("zero", "gib"), [(0, 106), (1, 36), (2, 25), (3, 13)])
def test_zero_on_8_ranks_with_7_1_billion_parameters(zero: int, gib: float) -> None:
    s, d = states(), 8
    shares = [s.parameter / (d if zero > 2 else 1), s.gradient / (d if zero > 1 else 1)]
    total = sum(shares) + (s.master + s.moments) / (d if zero else 1)
    assert 7.1e9 * total / GIB == pytest.approx(gib, abs=0.5)


def test_fp32_keeps_no_second_copy() -> None:
    state = states(precision="fp32")
    assert state.total == 16
    assert state.master == state.main_gradient == 0
    assert state.compute == state.reduce == 4


def test_fsdp_shards_are_fp32_and_gathered_in_16_bit() -> None:
    state = states(states="fp32-shards")
    assert (state.parameter, state.compute) == (4, 2)


def test_fp8_keeps_the_bytes_of_bf16() -> None:
    assert states(precision="fp8") == states(precision="bf16")


@pytest.mark.parametrize(
    ("optimizer", "moments"), [("adamw", 8), ("lamb", 8), ("sgd", 4), ("adam8bit", 2 + 2 * 4 / 256)]
)
def test_moments_by_optimizer(optimizer: str, moments: float) -> None:
    assert states(optimizer=optimizer).moments == moments


def test_muon_keeps_one_moment_in_hidden_matrices_and_two_in_tables() -> None:
    # GPT-2 small by hand: tables 50257 × 768 + 1024 × 768, hidden 12 layers × 12 × 768².
    tables, hidden = (50257 + 1024) * 768, 12 * 12 * 768**2
    by_hand = (8 * tables + 4 * hidden) / (tables + hidden)
    assert states(GPT2, optimizer="muon").moments == pytest.approx(by_hand)
    assert states(LLAMA_70B, optimizer="muon").moments == pytest.approx(4, rel=0.01)


def test_adafactor_keeps_rows_and_columns() -> None:
    one_matrix = replace(GPT2, layers=0, vocab=1000, hidden=100, position_rows=0)
    assert states(one_matrix, optimizer="adafactor").moments == pytest.approx(4 * (1000 + 100) / (1000 * 100))
    assert states(LLAMA_70B, optimizer="adafactor").moments < 0.002


@pytest.mark.parametrize("optimizer", ["muon", "adafactor"])
def test_optimizers_that_go_by_shape_ask_for_the_model(optimizer: str) -> None:
    with pytest.raises(WorkloadError, match=f"{optimizer} depend"):
        states(optimizer=optimizer)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("regime", STATES)
def test_adam_keeps_the_most(optimizer: str, regime: str) -> None:
    other = states(MIXTRAL, optimizer=optimizer, states=regime)
    adam = states(states=regime)
    assert other.moments <= adam.moments
    assert replace(other, moments=0) == replace(adam, moments=0)


@pytest.mark.parametrize(
    ("model", "parameters", "vectors"),
    [
        # Published counts, less norms and biases: Llama 2 has 2 norms a layer and a last one.
        (LLAMA_70B, 68_976_648_192, 161 * 8192),
        (MIXTRAL, 46_702_792_704, 65 * 4096),
        # GPT-2: 2 norms of weight and bias a layer and a last one; biases 3h + h + 4h + h a layer.
        (GPT2, 124_439_808, 25 * 2 * 768 + 12 * 9 * 768),
    ],
)
def test_the_matrices_are_all_but_the_vectors_of_the_model(model: Model, parameters: int, vectors: int) -> None:
    assert sum(m.size for m in weight_matrices(model)) == parameters - vectors
