"""Small models of transformers with random weights, computed wholly in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
MOE: dict[str, Any] = {
    "router_aux_loss_coef": 0.0,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
}
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
}
V3: dict[str, Any] = dict(LATENT, model_type="deepseek_v3", n_group=4, topk_group=2, routed_scaling_factor=2.5)
V2: dict[str, Any] = dict(LATENT, model_type="deepseek_v2", n_group=4, topk_group=2, routed_scaling_factor=3.0)
DEEPSEEK_YARN = dict(YARN, rope_theta=10000.0, mscale=1.0, mscale_all_dim=1.0, beta_fast=16, beta_slow=1)
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 3,
        "n_embd": 64,
        "n_head": 4,
        "n_positions": 4096,
        "vocab_size": 128,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    },
    "llama": dict(SMALL, model_type="llama", rope_theta=500000.0),
    "llama-biased-tied": dict(SMALL, model_type="llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama-llama3": dict(SMALL, model_type="llama", rope_theta=500000.0, rope_scaling=LLAMA3),
    "llama-linear": dict(SMALL, model_type="llama", rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "llama-yarn": dict(SMALL, model_type="llama", rope_scaling=YARN),
    "llama-wide-heads": dict(SMALL, model_type="llama", head_dim=32),
    "qwen2": dict(SMALL, model_type="qwen2", tie_word_embeddings=True),
    "qwen2-window": dict(SMALL, model_type="qwen2", use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "qwen3": dict(SMALL, model_type="qwen3", head_dim=32),
    "mistral": dict(SMALL, model_type="mistral", sliding_window=9),
    "mixtral": dict(SMALL, model_type="mixtral", num_local_experts=6, num_experts_per_tok=2, router_aux_loss_coef=0.0),
    "mixtral-window": dict(
        SMALL,
        model_type="mixtral",
        num_local_experts=4,
        num_experts_per_tok=2,
        router_aux_loss_coef=0.0,
        sliding_window=11,
    ),
    "qwen2-moe": dict(SMALL, **MOE, model_type="qwen2_moe", shared_expert_intermediate_size=48, mlp_only_layers=[1]),
    "qwen2-moe-window": dict(
        SMALL,
        **MOE,
        model_type="qwen2_moe",
        shared_expert_intermediate_size=48,
        decoder_sparse_step=2,
        use_sliding_window=True,
        sliding_window=5,
    ),
    "qwen3-moe": dict(SMALL, **MOE, model_type="qwen3_moe", head_dim=32, norm_topk_prob=True),
    "deepseek-v3": dict(SMALL, **V3, q_lora_rank=40),
    "deepseek-v3-plain-query": dict(SMALL, **V3, q_lora_rank=None, rms_norm_eps=1e-3),
    "deepseek-v3-yarn": dict(SMALL, **V3, q_lora_rank=40, rope_parameters=DEEPSEEK_YARN),
    "deepseek-v3-halves": dict(SMALL, **V3, q_lora_rank=40, rope_interleave=False, attention_bias=True),
    "deepseek-v2": dict(
        SMALL, **V2, q_lora_rank=None, topk_method="greedy", rope_parameters=dict(DEEPSEEK_YARN, mscale=0.707)
    ),
    "deepseek-v2-groups": dict(SMALL, **V2, q_lora_rank=40, topk_method="group_limited_greedy"),
}


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """transformers computes norms, softmax, routers and rotary tables in float32 even in a float64 model; not here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


def random_model(config: dict[str, Any], seed: int = 0) -> Any:
    """The model of a configuration in float64, every parameter random: norms about one, the rest small."""
    with in_float64():
        settings = transformers.AutoConfig.for_model(**config)
        model = transformers.AutoModelForCausalLM.from_config(
            settings, attn_implementation="eager", experts_implementation="eager"
        ).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.1
            parameter.copy_(noise + 1 if "norm" in name or ".ln_" in name else noise)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator, dtype=torch.float64) * 0.1)
    return model.eval()
