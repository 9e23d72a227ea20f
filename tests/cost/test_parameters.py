"""Parameters by part, active parameters, matrices and adapters, against published figures and hand counts."""

from __future__ import annotations

import pytest

from meshwright.cost.parameters import (
    attention_parameters,
    dense_mlp_parameters,
    expert_parameters,
    layer_parameters,
    lora_parameters,
    matmul_parameters,
    norm_parameters,
    parameters,
    router_parameters,
    shared_expert_parameters,
)
from meshwright.spec.errors import WorkloadError
from meshwright.spec.model import Model
from meshwright.spec.model_config import list_models, load_model

PRESETS = list_models()
BY_NAME = pytest.mark.parametrize("model", PRESETS, ids=lambda model: model.name)

# Each model's card or paper; DeepSeek-V3 without the multi-token prediction module.
PUBLISHED = {
    "gpt2": 124_439_808,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "deepseek-v3": 671_026_419_200,
    "bloom-176b": 176_247_271_424,  # arXiv:2211.05100 table 3
    "gpt-neox-20b": 20_554_567_680,  # arXiv:2204.06745 section 2
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_total_is_the_published_count(name: str) -> None:
    assert parameters(load_model(name)).total == PUBLISHED[name]


# arXiv:2104.04473 table 1 and arXiv:2205.05198 table 3, billions.
@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("1.7b", 1.7),
        ("3.6b", 3.6),
        ("7.5b", 7.5),
        ("18b", 18.4),
        ("39b", 39.1),
        ("76b", 76.1),
        ("145b", 145.6),
        ("310b", 310.1),
        ("530b", 529.6),
        ("1t", 1008.0),
        ("22b", 22.1),
        ("175b", 174.6),
    ],
)
def test_megatron_sizes_are_those_of_the_papers(name: str, billions: float) -> None:
    assert round(parameters(load_model(f"megatron-{name}")).total / 1e9, 1) == billions


def test_megatron_formula_leaves_out_only_the_final_norm() -> None:
    model = load_model("megatron-145b")
    layers, hidden = model.layers, model.hidden
    # arXiv:2104.04473 equation 2: 12 l h² (1 + 13 / 12h + (V + s) / 12lh)
    equation = 12 * layers * hidden**2 + 13 * layers * hidden + (51200 + 2048) * hidden
    assert parameters(model).total == equation + 2 * hidden


# Billions of activated parameters on the models' cards, embedding and head included.
@pytest.mark.parametrize(
    ("name", "billions", "digits"),
    [
        ("mixtral-8x7b", 12.9, 1),
        ("mixtral-8x22b", 39, 0),
        ("qwen1.5-moe-a2.7b", 2.7, 1),
        ("qwen2-57b-a14b", 14, 0),
        ("qwen3-235b-a22b", 22, 0),
        ("deepseek-v2", 21, 0),
        ("olmoe-1b-7b", 1.3, 1),
        ("llama-4-scout-17b-16e", 17, 0),
        ("llama-4-maverick-17b-128e", 17, 0),
    ],
)
def test_active_parameters_round_to_the_cards_figure(name: str, billions: float, digits: int) -> None:
    assert round(parameters(load_model(name)).active / 1e9, digits) == billions


# arXiv:2508.10925 table 1 leaves the input table out of the active parameters.
@pytest.mark.parametrize(("name", "total", "active"), [("gpt-oss-120b", 116.83, 5.13), ("gpt-oss-20b", 20.91, 3.61)])
def test_gpt_oss_active_parameters_are_the_cards_without_the_input_table(
    name: str, total: float, active: float
) -> None:
    counts = parameters(load_model(name))
    assert round(counts.total / 1e9, 2) == total
    assert round((counts.active - counts.embedding) / 1e9, 2) == active


# arXiv:2412.19437: 37 B of DeepSeek-V3 activated; the card of Kimi K2: 32 B.
@pytest.mark.parametrize(("name", "billions"), [("deepseek-v3", 37), ("kimi-k2", 32)])
def test_matmul_parameters_round_to_the_activated_figure(name: str, billions: float) -> None:
    assert round(matmul_parameters(load_model(name)) / 1e9) == billions


def test_matmul_parameters_of_gpt3_by_hand() -> None:
    assert matmul_parameters(load_model("gpt3-175b")) == 96 * 12 * 12288**2 + 50257 * 12288


def test_a_mixtral_layer_by_hand() -> None:
    model = load_model("mixtral-8x7b")
    layer = layer_parameters(model, 0)
    assert layer.attention == attention_parameters(model) == 4096 * 4096 * 2 + 4096 * 1024 * 2
    assert layer.norms == norm_parameters(model) == 2 * 4096
    assert layer.router == router_parameters(model) == 4096 * 8
    assert expert_parameters(model) == 3 * 4096 * 14336
    assert layer.routed_experts == 8 * expert_parameters(model)
    assert layer.total - layer.active == 6 * expert_parameters(model)
    assert (layer.mlp, layer.shared_experts) == (0, 0)


def test_deepseek_v3_starts_with_three_dense_layers() -> None:
    model = load_model("deepseek-v3")
    dense, mixture = layer_parameters(model, 2), layer_parameters(model, 3)
    assert (dense.mlp, dense.routed_experts) == (dense_mlp_parameters(model), 0)
    assert (mixture.mlp, mixture.routed_experts) == (0, 256 * 3 * 7168 * 2048)
    assert mixture.shared_experts == shared_expert_parameters(model) == 3 * 7168 * 2048
    assert mixture.router == 256 * 7168 + 256
    # q 7168×1536 + 1536×128×192, kv 7168×576 + 512×128×256, o 128×128×7168
    assert dense.attention == 7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 + 16384 * 7168
    assert dense.norms == 2 * 7168 + 1536 + 512


def test_a_tied_head_adds_nothing_and_an_untied_one_a_table() -> None:
    assert parameters(load_model("qwen2.5-0.5b")).head == 0
    assert parameters(load_model("qwen2.5-7b")).head == 152064 * 3584


@BY_NAME
def test_layers_and_the_rest_add_up_to_the_total(model: Model) -> None:
    counts = parameters(model)
    layers = sum(layer_parameters(model, i).total for i in range(model.layers))
    assert layers + counts.embedding + counts.position + counts.final + counts.head == counts.total
    assert counts.dense_layers + counts.moe_layers == model.layers


@BY_NAME
def test_only_mixtures_have_idle_parameters(model: Model) -> None:
    counts = parameters(model)
    assert (counts.active < counts.total) == (model.experts is not None)


@BY_NAME
def test_a_token_is_multiplied_by_no_more_than_the_active_parameters_and_a_tied_head(model: Model) -> None:
    counts = parameters(model)
    assert 0 < matmul_parameters(model) <= counts.active + (counts.embedding if model.tied_embeddings else 0)


# Counted by peft 0.21.2 on transformers 5.24.0 models on the meta device.
@pytest.mark.parametrize(
    ("name", "rank", "targets", "count"),
    [
        ("llama-2-7b", 8, "q v", 4_194_304),
        ("llama-3-8b", 16, "q k v o gate up down", 41_943_040),
        ("qwen3-0.6b", 4, "q k o down", 1_376_256),
        ("gemma-2-2b", 8, "q k v o", 3_194_880),
        ("phi-2", 8, "q v", 2_621_440),
        ("deepseek-v2", 8, "q k v o", 44_759_040),
    ],
)
def test_adapters_are_as_many_as_peft_makes(name: str, rank: int, targets: str, count: int) -> None:
    assert lora_parameters(load_model(name), rank, targets.split()) == count


def test_every_expert_has_adapters_of_its_own() -> None:
    model = load_model("mixtral-8x7b")
    assert lora_parameters(model, 4, ["up"]) == 32 * 8 * 4 * (4096 + 14336)


def test_latent_key_and_value_share_one_set_of_adapters() -> None:
    model = load_model("deepseek-v2-lite")
    both = 27 * 8 * ((2048 + 576) + (512 + 16 * 256))
    assert lora_parameters(model, 8, ["k"]) == lora_parameters(model, 8, ["k", "v"]) == both


def test_adapters_on_a_projection_that_is_not_there_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"no projection 'gate'.*Legal: q, k, v, o, up, down"):
        lora_parameters(load_model("gpt2"), 8, ["gate"])
