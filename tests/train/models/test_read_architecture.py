"""Configurations: the numbers that computing needs, and what is refused because it would be computed wrongly."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.model_files import model_names
from meshwright.spec.errors import ModelError
from meshwright.train.models.architecture import Architecture, Routing
from meshwright.train.models.build import NUMERICS, PRESETS, build_model, load_architecture
from meshwright.train.models.positions import Rope
from meshwright.train.models.read_architecture import read_architecture

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 128,
}


def read(**changes: object) -> Any:
    return read_architecture({**LLAMA, **changes})


def test_absent_keys_mean_what_they_mean_in_transformers() -> None:
    a = read()
    assert (a.norm_eps, a.activation, a.rope, a.windows) == (1e-6, "silu", Rope(10000.0), (0,) * 4)
    assert read(model_type="mistral").windows == (4096,) * 4
    assert read(model_type="mistral", sliding_window=None).windows == (0,) * 4
    assert read(model_type="mixtral", num_local_experts=4, num_experts_per_tok=2).rope == Rope(1e6)


def test_old_and_new_spelling_of_rotary_scaling_are_one() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
    old = read(rope_theta=5e5, rope_scaling={"type": "llama3", **scaling})
    new = read(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **scaling})
    assert old.rope == new.rope == Rope(5e5, "llama3", 8.0, 512, 1.0, 4.0)


def test_qwens_window_is_off_unless_asked_for_and_then_in_late_layers_only() -> None:
    window = {"model_type": "qwen2", "sliding_window": 16, "max_window_layers": 3}
    assert read(**window).windows == (0, 0, 0, 0)
    assert read(**window, use_sliding_window=True).windows == (0, 0, 0, 16)
    kinds = ["sliding_attention", "full_attention"] * 2
    assert read(**window, use_sliding_window=True, layer_types=kinds).windows == (16, 0, 16, 0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'. Legal: default, linear"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is None, but must be a number from 1"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0}}, "above low_freq_factor"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_slow": 0}},
            "beta_slow is 0.0, but must be above 0",
        ),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, but must be 1"),
        ({"rope_theta": "big"}, "rope_theta is 'big', but must be a number"),
        ({"rope_theta": 0}, "rope_theta is 0.0, but must be above 1"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'. Legal: silu"),
        ({"head_dim": 15}, "head_dim is 15"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"model_type": "olmo2"}, "norms over whole queries and keys"),
        ({"model_type": "gemma"}, "of the family gemma"),
        ({"model_type": "phi", "rope_theta": 1e4}, "side by side"),
        ({"model_type": "unheard-of"}, "of the family unheard-of"),
        ({"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["linear_attention"] * 4}, "layer_types"),
        ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True, "n_positions": 64}, "must be false"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError) as error:
        read(**changes)
    assert says in str(error.value)


def test_the_refusal_of_a_family_lists_those_that_are_computed() -> None:
    with pytest.raises(ModelError, match=r"attention sinks.*Legal: gpt2, megatron, llama, .*deepseek_v3"):
        load_architecture("gpt-oss-20b")


def test_dropout_is_said_to_be_left_out() -> None:
    assert read(attention_dropout=0.1).notes == ("no dropout is applied (attention_dropout = 0.1)",)
    assert read().notes == ()


def test_catalogue_presets_have_the_numbers_of_their_published_configurations() -> None:
    llama = load_architecture("meta-llama/Llama-3.1-8B")
    assert (llama.norm_eps, llama.rope) == (1e-5, Rope(500000.0, "llama3", 8.0, 8192, 1.0, 4.0))
    assert load_architecture("qwen3-30b-a3b").renormalise
    assert not load_architecture("qwen1.5-moe-a2.7b").renormalise
    assert load_architecture("mixtral-8x7b").balance_coefficient == 0.02
    assert load_architecture("mistral-7b").windows == (4096,) * 32
    assert set(json.loads(NUMERICS.read_text())) <= set(model_names())


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
KEYS = st.sampled_from(
    """rms_norm_eps hidden_act sliding_window use_sliding_window layer_types max_window_layers rope_theta rope_scaling
    rope_parameters partial_rotary_factor norm_topk_prob router_aux_loss_coef initializer_range attention_dropout
    head_dim max_position_embeddings original_max_position_embeddings quantization_config text_config""".split()
)
SCALING = st.fixed_dictionaries({"rope_type": st.sampled_from(["linear", "llama3", "yarn"]) | JUNK, "factor": JUNK})


@given(
    st.sampled_from(["llama", "mistral", "qwen2", "qwen3"]),
    st.dictionaries(KEYS, JUNK, max_size=3),
    st.none() | SCALING,
)
def test_any_configuration_is_read_or_refused(family: str, changes: dict[str, Any], scaling: Any) -> None:
    with contextlib.suppress(ModelError):
        read(model_type=family, **{"rope_scaling": scaling, **changes})


@pytest.mark.parametrize("name", ["gpt2", "gpt3-175b", "llama-3.1-405b", "qwen3-235b-a22b", "megatron-1t"])
def test_real_models_build_without_memory(name: str) -> None:
    model = build_model(name)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    with pytest.raises(ModelError, match="llama-3-8b"):
        load_architecture("lama-3-8b")


def deepseek(**changes: Any) -> Architecture:
    config = {**json.loads((PRESETS / "tiny-deepseek.json").read_text()), **changes}
    return read_architecture(config)


def test_deepseek_v3_has_the_numbers_of_its_published_configuration() -> None:
    a = load_architecture("deepseek-v3")
    assert a.routing == Routing("sigmoid", True, 8, 4, 2, 2.5)
    assert a.renormalise
    assert a.rope is not None
    assert (a.rope.kind, a.rope.factor, a.rope.original_positions, a.rope.attention_factor) == ("yarn", 40, 4096, 1)
    # 0.1 ln 40 + 1 = 1.368888, squared (arXiv:2309.00071 equation 22; DeepSeek's softmax_scale).
    assert a.rope.score_factor == pytest.approx(1.368888**2, rel=1e-6)
    assert a.rope.neighbours
    assert any("multi-token prediction" in note for note in a.notes)
    assert any("2408.15664" in note for note in a.notes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_group": 3}, "n_group is 3, but must be a divisor of 8 experts"),
        ({"n_group": 8}, "n_group is 8, but must be a divisor of 8 experts that leaves 2 a group"),
        ({"topk_group": 5}, "topk_group is 5"),
        ({"n_group": 4, "topk_group": 1, "num_experts_per_tok": 3}, "topk_group is 1"),
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax', but must be sigmoid"),
        ({"topk_method": "greedy"}, "topk_method is 'greedy', but must be noaux_tc"),
        ({"model_type": "deepseek_v2", "scoring_func": "softmax", "topk_method": "greedy"}, "norm_topk_prob is True"),
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim is 7"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised"),
    ],
)
def test_a_deepseek_that_would_be_computed_wrongly_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError) as error:
        deepseek(**changes)
    assert says in str(error.value)
