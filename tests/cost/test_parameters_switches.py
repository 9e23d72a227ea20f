"""What configurations switch on and off, counted on small models against Hugging Face `transformers`."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.cost.parameters import parameters
from meshwright.spec.model_config import read_config

SIZES = {"hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 4, "vocab_size": 100}
MHA = {**SIZES, "intermediate_size": 96, "max_position_embeddings": 32}
GQA = {**MHA, "num_key_value_heads": 2}
OPT = {**SIZES, "ffn_dim": 96, "max_position_embeddings": 32}
GPT = {"n_embd": 64, "n_layer": 5, "n_head": 4, "vocab_size": 100, "n_positions": 32}

# Counted by transformers 5.24.0 on the meta device.
COUNTED: list[tuple[str, int, str, dict[str, Any], dict[str, Any]]] = [
    ("llama with all biases", 169_344, "llama", GQA, {"attention_bias": True, "mlp_bias": True}),
    ("llama with wide heads, tied", 191_424, "llama", GQA, {"head_dim": 24, "tie_word_embeddings": True}),
    ("qwen3 with attention biases", 168_224, "qwen3", GQA, {"head_dim": 16, "attention_bias": True}),
    ("gemma with head_dim left out", 1_082_304, "gemma", GQA, {}),
    ("gemma3 untied", 167_904, "gemma3_text", GQA, {"tie_word_embeddings": False, "head_dim": 16}),
    ("neox, serial, tied", 153_248, "gpt_neox", MHA, {"use_parallel_residual": False, "tie_word_embeddings": True}),
    ("neox without attention biases", 158_368, "gpt_neox", MHA, {"attention_bias": False}),
    ("gpt2 with a narrow feed-forward part", 144_976, "gpt2", GPT, {"n_inner": 80}),
    ("gptj with head_bias", 261_028, "gptj", GPT, {}),
    ("gpt_bigcode, multi-head", 258_496, "gpt_bigcode", GPT, {"multi_query": False}),
    ("opt without biases", 153_344, "opt", OPT, {"word_embed_proj_dim": 64, "enable_bias": False}),
    ("opt, narrow table, norm first", 152_672, "opt", OPT, {"word_embed_proj_dim": 16}),
    (
        "falcon, serial, multi-head, biases",
        153_248,
        "falcon",
        MHA,
        {"ffn_hidden_size": 96, "parallel_attn": False, "multi_query": False, "bias": True},
    ),
    (
        "falcon, new, one norm",
        130_048,
        "falcon",
        MHA,
        {"ffn_hidden_size": 96, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    ("starcoder2 without biases", 130_688, "starcoder2", GQA, {"use_bias": False}),
    ("nemotron with biases", 138_848, "nemotron", GQA, {"head_dim": 16, "attention_bias": True, "mlp_bias": True}),
    (
        "qwen2_moe, every second layer",
        221_120,
        "qwen2_moe",
        GQA,
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
            "decoder_sparse_step": 2,
        },
    ),
    (
        "qwen2_moe without qkv bias",
        300_544,
        "qwen2_moe",
        GQA,
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
            "qkv_bias": False,
        },
    ),
    (
        "qwen3_moe with two dense layers",
        224_096,
        "qwen3_moe",
        GQA,
        {
            "head_dim": 16,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "mlp_only_layers": [1, 4],
            "decoder_sparse_step": 1,
        },
    ),
    ("olmoe", 815_264, "olmoe", GQA, {"num_experts": 8, "num_experts_per_tok": 2}),
    (
        "gpt_oss without attention bias",
        825_084,
        "gpt_oss",
        GQA,
        {
            "head_dim": 16,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "attention_bias": False,
            "sliding_window": 8,
        },
    ),
    (
        "llama4, every second layer",
        334_464,
        "llama4_text",
        GQA,
        {
            "head_dim": 16,
            "intermediate_size_mlp": 128,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "attention_bias": True,
        },
    ),
    (
        "deepseek_v2 with q_lora and attention bias",
        235_704,
        "deepseek_v2",
        MHA,
        {
            "q_lora_rank": 24,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 12,
            "qk_rope_head_dim": 8,
            "v_head_dim": 10,
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "first_k_dense_replace": 2,
            "attention_bias": True,
        },
    ),
    ("bert for pre-training", 164_102, "bert", MHA, {"architectures": ["BertForPreTraining"]}),
    ("granite, tied", 160_704, "granite", GQA, {"tie_word_embeddings": True}),
    ("phi", 159_108, "phi", MHA, {}),
]


@pytest.mark.parametrize(("what", "count", "family", "sizes", "switches"), COUNTED, ids=[row[0] for row in COUNTED])
def test_total_is_what_transformers_counts(
    what: str, count: int, family: str, sizes: dict[str, Any], switches: dict[str, Any]
) -> None:
    model = read_config({"model_type": family, **sizes, **switches}, what)
    assert parameters(model).total == count
