"""Presets: their names, sources and shapes."""

from __future__ import annotations

import json

import pytest

from meshwright.catalog.model_files import ALIASES, find_models, model_file, model_names
from meshwright.spec.errors import ModelError
from meshwright.spec.model_config import list_models, load_model


@pytest.mark.parametrize("name", model_names())
def test_every_preset_has_a_public_source_and_reads_without_a_guess(name: str) -> None:
    model = load_model(name)
    assert model.source.startswith("https://")
    assert model.name == name
    assert not [warning for warning in model.warnings if "unknown" in warning or "read as" in warning]


def test_the_list_is_every_file_once() -> None:
    assert tuple(model.name for model in list_models()) == model_names()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("LLAMA-2-7B", "llama-2-7b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("llama3-8b", "llama-3-8b"),
        ("llama_3_8b", "llama-3-8b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen3-30B-A3B-Base", "qwen3-30b-a3b"),
        ("bigscience/bloom", "bloom-176b"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("microsoft/phi-2", "phi-2"),
        ("gpt-2", "gpt2"),
        ("GPT3", "gpt3-175b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
    ],
)
def test_other_spellings_name_the_same_preset(text: str, name: str) -> None:
    assert load_model(text).name == name


def test_every_alias_names_a_preset_and_hides_none() -> None:
    aliases = json.loads(ALIASES.read_text(encoding="utf-8"))
    assert set(aliases.values()) <= set(model_names())
    assert not set(aliases) & set(model_names())


def test_no_two_presets_share_a_spelling() -> None:
    for name in model_names():
        assert find_models(f"some-org/{name.replace('-', '_').upper()}") == (name,)


# Digits do not run together: llama-27b is not Llama 2 7B.
@pytest.mark.parametrize("text", ["llama-27b", "llama-38b", "gpt3-17", "qwen-2.57b", "llama-4-7b"])
def test_a_name_that_no_model_has_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match=r"neither a preset .* nor the path"):
        load_model(text)


def test_an_unknown_name_gets_near_ones() -> None:
    with pytest.raises(ModelError) as refusal:
        load_model("lama-2-7b")
    assert refusal.value.legal[0] == "llama-2-7b"


# Shapes from the papers: arXiv:2412.19437 section 4.2, arXiv:2408.00118 table 1, gpt-oss's card (arXiv:2508.10925).
def test_deepseek_v3_has_the_papers_shape() -> None:
    model = load_model("deepseek-v3")
    assert (model.layers, model.hidden, model.heads, model.moe_layers) == (61, 7168, 128, 58)
    assert model.latent is not None
    assert model.experts is not None
    assert (model.latent.kv_lora_rank, model.latent.q_lora_rank, model.latent.v_head_dim) == (512, 1536, 128)
    assert (model.experts.count, model.experts.per_token, model.experts.ffn_hidden) == (256, 8, 2048)
    assert "multi-token prediction" in model.warnings[0]


@pytest.mark.parametrize(
    ("name", "window", "every"),
    [
        ("gemma-2-9b", 4096, 2),
        ("gpt-oss-20b", 128, 2),
        ("gemma-3-1b", 512, 6),
        ("mistral-7b", 4096, 1),
        ("mistral-7b-v0.3", 0, 1),
        ("qwen2.5-7b", 0, 1),
    ],
)
def test_windows_are_where_the_papers_say(name: str, window: int, every: int) -> None:
    model = load_model(name)
    assert (model.attention_window, model.window_every) == (window, every)


def test_the_first_preset_file_is_json_with_its_source_first() -> None:
    assert next(iter(json.loads(model_file(model_names()[0]).read_text(encoding="utf-8")))) == "_source"
