"""Reading configurations: paths, refusals, warnings, and what each family's keys mean."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright.spec.errors import ModelError
from meshwright.spec.model_config import LARGEST_FILE_BYTES, load_model, read_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 32,
}


def refusal(config: Any) -> str:
    with pytest.raises(ModelError) as caught:
        read_config(config, "here")
    return str(caught.value)


def test_a_folder_and_its_config_give_the_same_model_named_after_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    model = load_model(str(folder))
    assert model == load_model(str(folder / "config.json"))
    assert (model.name, model.layers, model.kv_heads, model.head_dim) == ("my-model", 2, 4, 8)


def test_any_other_file_gives_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(LLAMA))
    assert load_model(str(tmp_path / "tiny.json")).name == "tiny"


def test_a_preset_wins_over_a_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    assert load_model("gpt2").family == "gpt2"
    assert load_model("./gpt2").family == "llama"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[1]", "is a JSON object, not a list"),
        ("null", "is a JSON object, not a NoneType"),
        ("[" * 100_000, "is not valid JSON"),
        ("9" * 5_000, "is not valid JSON"),
        (" " * (LARGEST_FILE_BYTES + 1), "is larger than 10 MiB"),
        ('{"model_type": "llama", "hidden_size": NaN}', "hidden_size is nan"),
        ('{"model_type": "llama", "hidden_size": 1e400}', "hidden_size is inf"),
    ],
    ids=["broken", "empty", "list", "null", "deep", "long number", "large", "nan", "infinite"],
)
def test_a_file_that_holds_no_configuration_is_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(content)
    with pytest.raises(ModelError) as caught:
        load_model(str(file))
    assert message in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("text", ["", "  ", "\0", "nowhere/config.json", "x" * 5_000, "no.json"])
def test_a_name_that_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(text)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json does not exist"):
        load_model(str(tmp_path))


def test_all_missing_keys_are_named_at_once() -> None:
    message = refusal({"model_type": "deepseek_v3", "hidden_size": 64})
    for key in ("num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "kv_lora_rank"):
        assert key in message


def test_a_known_family_with_nothing_else_names_its_own_keys() -> None:
    assert "n_layer, n_embd, n_head, vocab_size, n_positions" in refusal({"model_type": "gpt2"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", True),
        ("hidden_size", "64"),
        ("hidden_size", 64.5),
        ("hidden_size", [64]),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", -1),
        ("num_hidden_layers", 10_001),
        ("vocab_size", 10**40),
        ("vocab_size", float("nan")),
        ("head_dim", 0),
        ("tie_word_embeddings", "yes"),
        ("tie_word_embeddings", 1),
        ("attention_bias", 0),
        ("model_type", 7),
        ("model_type", ["llama"]),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_what_is_legal(key: str, value: Any) -> None:
    message = refusal({**LLAMA, key: value})
    assert message.startswith(f"here: {key} is ")
    assert "must be" in message


def test_heads_that_do_not_divide_hidden_need_a_head_dim() -> None:
    odd = {**LLAMA, "num_attention_heads": 12}
    assert "num_attention_heads is 12, but must be a divisor of hidden_size (64)" in refusal(odd)
    assert read_config({**odd, "head_dim": 8}).head_dim == 8


def test_key_value_heads_must_divide_heads() -> None:
    assert "3 key-value heads must divide 8 heads. Legal: 2, 4, 1, 8" in refusal({**LLAMA, "num_key_value_heads": 3})


def test_null_counts_as_absent() -> None:
    assert read_config({**LLAMA, "num_key_value_heads": None, "sliding_window": None}).kv_heads == 8


def test_whole_floats_are_read_as_the_numbers_they_are() -> None:
    assert read_config({**LLAMA, "hidden_size": 64.0}) == read_config(LLAMA)


def test_an_unknown_architecture_with_the_usual_keys_is_read_with_a_warning() -> None:
    model = read_config({**LLAMA, "model_type": "qwen33"})
    assert model.layers == 2
    assert "'qwen33' is unknown (did you mean qwen3" in model.warnings[0]


def test_an_unknown_mixture_keeps_its_experts() -> None:
    mixture = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    model = read_config({**LLAMA, "model_type": "new", **mixture})
    assert model.experts is not None
    assert (model.experts.count, model.experts.per_token, model.experts.ffn_hidden) == (8, 2, 32)
    assert "num_experts_per_tok" in refusal({**LLAMA, "model_type": "new", "num_experts": 8})


def test_an_unknown_architecture_without_the_usual_keys_is_refused() -> None:
    assert "missing num_hidden_layers" in refusal({"model_type": "new", "hidden_size": 64})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "new", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "mamba2"}, "state-space"),
        ({"model_type": "qwen3_next", "num_experts": 4}, "linear-attention"),
    ],
)
def test_what_no_decoder_stands_for_is_refused(changed: dict[str, Any], why: str) -> None:
    assert why in refusal({**LLAMA, **changed})


def test_latent_attention_under_an_unknown_name_is_refused_and_not_read_as_plain() -> None:
    assert "deepseek_v2 or deepseek_v3" in refusal({**LLAMA, "model_type": "new", "kv_lora_rank": 16})


def test_of_a_multimodal_wrapper_the_language_model_is_read_and_the_rest_named() -> None:
    model = read_config({"model_type": "vlm", "text_config": LLAMA, "vision_config": {"hidden_size": 9}})
    assert model.hidden == 64
    assert model.warnings == ("only text_config is read; left out: vision_config",)


def test_an_irregular_window_pattern_is_read_with_a_warning() -> None:
    kinds = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    wide = {**LLAMA, "model_type": "gemma2", "num_hidden_layers": 4, "sliding_window": 16, "layer_types": kinds}
    model = read_config(wide)
    assert (model.attention_window, model.window_every) == (16, 2)
    assert "irregular" in model.warnings[0]


def test_quantised_weights_are_read_as_unquantised_with_a_warning() -> None:
    four_bits = read_config({**LLAMA, "quantization_config": {"bits": 4}})
    assert "quantization_config" in four_bits.warnings[0]
    assert replace(four_bits, warnings=()) == read_config(LLAMA)


def test_megatron_arguments_are_read_with_megatrons_defaults() -> None:
    size = {"num_layers": 2, "hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 32}
    plain = read_config({"model_type": "megatron", **size, "padded_vocab_size": 512})
    assert (plain.ffn_hidden, plain.norm, plain.tied_embeddings, plain.position_rows) == (3072, "layernorm", True, 32)
    swiglu = read_config({"model_type": "megatron", **size, "vocab_size": 512, "swiglu": True, "num_experts": 4})
    assert swiglu.ffn_hidden == 2048  # 4 × 768 × 2/3
    assert swiglu.experts is not None
    assert (swiglu.experts.count, swiglu.experts.per_token, swiglu.experts.ffn_hidden) == (4, 2, 2048)


def test_bert_has_the_head_that_its_architecture_names() -> None:
    bert = {**LLAMA, "model_type": "bert"}
    assert not read_config({**bert, "architectures": ["BertForMaskedLM"]}).pooler
    pretraining = read_config({**bert, "architectures": ["BertForPreTraining"]})
    assert pretraining.pooler
    assert pretraining.sentence_head
    other = read_config({**bert, "architectures": ["BertForSequenceClassification"]})
    assert "BertForSequenceClassification is read as BertForMaskedLM" in other.warnings[0]
