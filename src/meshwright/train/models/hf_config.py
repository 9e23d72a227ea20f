"""The `config.json` of an Architecture, every number that matters written out, so that no reader's default decides."""

from __future__ import annotations

from typing import Any

from meshwright.spec.errors import ModelError
from meshwright.spec.model import LatentAttention
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.positions import Rope

CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}
"""`model_type` → the class in transformers that computes it."""
_ACTIVATIONS = {"gelu_tanh": "gelu_new"}
"""Where our name of an activation differs from the one in transformers."""


def hf_config(a: Architecture) -> dict[str, Any]:
    """The configuration that `transformers` reads; keys of the original that change no numbers are kept.

    Raises ModelError for a model that no class in transformers computes (some of Megatron's).
    """
    family = _family(a)
    written = ("rope_parameters", "rope_scaling", "layer_types", "torch_dtype")
    kept = {k: v for k, v in a.config.items() if k not in written and a.model.family == family}
    # The classes' own defaults may lie outside this vocabulary.
    tokens = {"bos_token_id": None, "eos_token_id": None}
    numbers = _gpt2(a) if family == "gpt2" else _llama(a, family)
    # Of several names for one activation, the one that was read is kept.
    named = {key: kept[key] for key in ("hidden_act", "activation_function") if kept.get(key)}
    return {**tokens, **kept, **numbers, **named, "model_type": family, "architectures": [CLASSES[family]]}


def _family(a: Architecture) -> str:
    m = a.model
    if m.family in CLASSES:
        return m.family
    biased = m.qkv_bias and m.attention_out_bias and m.mlp_bias and m.norm == "layernorm"
    plain = not m.gated_mlp and m.qk_norm == "none" and m.kv_heads == m.heads and m.experts is None
    if biased and plain and m.positions == "learned" and m.heads * m.head_dim == m.hidden:
        return "gpt2"
    raise ModelError(f"{m.name}: Hugging Face transformers has no class for this model.", legal=tuple(CLASSES))


def _gpt2(a: Architecture) -> dict[str, Any]:
    m = a.model
    return {
        "n_layer": m.layers,
        "n_embd": m.hidden,
        "n_head": m.heads,
        "n_inner": m.ffn_hidden,
        "n_positions": m.position_rows,
        "vocab_size": m.vocab,
        "activation_function": _ACTIVATIONS.get(a.activation, a.activation),
        "layer_norm_epsilon": a.norm_eps,
        "tie_word_embeddings": m.tied_embeddings,
    }


def _llama(a: Architecture, family: str) -> dict[str, Any]:
    m, windowed = a.model, {w for w in a.windows if w}
    numbers: dict[str, Any] = {
        "hidden_size": m.hidden,
        "num_hidden_layers": m.layers,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads,
        "intermediate_size": m.ffn_hidden,
        "vocab_size": m.vocab,
        "max_position_embeddings": m.max_positions,
        "hidden_act": _ACTIVATIONS.get(a.activation, a.activation),
        "rms_norm_eps": a.norm_eps,
        "tie_word_embeddings": m.tied_embeddings,
        "sliding_window": max(windowed) if windowed else None,
        **_rope(a),
    }
    if m.latent is None and (m.head_dim * m.heads != m.hidden or family in ("qwen3", "qwen3_moe")):
        numbers["head_dim"] = m.head_dim
    if family in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        numbers["use_sliding_window"] = bool(windowed)
    if family in ("qwen2", "qwen3", "qwen2_moe") and windowed:
        numbers["layer_types"] = ["sliding_attention" if w else "full_attention" for w in a.windows]
    if family in ("llama", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3"):
        numbers["attention_bias"] = m.qkv_bias
    if family == "llama":
        numbers["mlp_bias"] = m.mlp_bias
    if m.latent is not None:
        assert a.rope is not None
        return {**numbers, **_latent(m.latent, a.rope), **_deepseek_experts(a)}
    return {**numbers, **_experts(a, family)}


def _rope(a: Architecture) -> dict[str, Any]:
    r = a.rope
    assert r is not None
    if r.kind == "default":
        return {"rope_theta": r.theta, "rope_scaling": None}
    scaling: dict[str, Any] = {"rope_type": r.kind, "factor": r.factor}
    if r.mscale_all_dim:
        scaling["mscale_all_dim"] = r.mscale_all_dim
    if r.kind != "linear":
        scaling["original_max_position_embeddings"] = r.original_positions
    if r.kind == "llama3":
        scaling |= {"low_freq_factor": r.low_freq_factor, "high_freq_factor": r.high_freq_factor}
    if r.kind == "yarn":
        scaling |= {"beta_fast": r.beta_fast, "beta_slow": r.beta_slow, "attention_factor": r.attention_factor}
        scaling["truncate"] = r.truncate
    return {"rope_theta": r.theta, "rope_scaling": scaling}


def _latent(m: LatentAttention, r: Rope) -> dict[str, Any]:
    return {
        "q_lora_rank": m.q_lora_rank or None,
        "kv_lora_rank": m.kv_lora_rank,
        "qk_nope_head_dim": m.qk_nope_head_dim,
        "qk_rope_head_dim": m.qk_rope_head_dim,
        "v_head_dim": m.v_head_dim,
        "rope_interleave": r.neighbours,
    }


def _deepseek_experts(a: Architecture) -> dict[str, Any]:
    e, r = a.model.experts, a.routing
    if e is None:
        raise ModelError(f"{a.model.name}: transformers has latent attention in mixtures of experts only.")
    if len(e.dense_layers) or not e.shared_ffn_hidden:
        raise ModelError(f"{a.model.name}: in transformers all layers behind the first dense ones are mixtures with "
                         "a shared expert.")  # fmt: skip
    method = "noaux_tc" if r.corrected else "group_limited_greedy" if r.groups > 1 else "greedy"
    return {
        "n_routed_experts": e.count,
        "num_experts_per_tok": e.per_token,
        "moe_intermediate_size": e.ffn_hidden,
        "n_shared_experts": e.shared_ffn_hidden // e.ffn_hidden,
        "first_k_dense_replace": e.first_dense_layers,
        "n_group": r.groups,
        "topk_group": r.groups_kept,
        "topk_method": method,
        "scoring_func": r.scores,
        "routed_scaling_factor": r.scale,
        "norm_topk_prob": a.renormalise,
        "aux_loss_alpha": a.balance_coefficient,
        # No module for multi-token prediction is written.
        "num_nextn_predict_layers": 0,
    }


def _experts(a: Architecture, family: str) -> dict[str, Any]:
    e = a.model.experts
    if e is None:
        return {}
    numbers = {"num_experts_per_tok": e.per_token, "router_aux_loss_coef": a.balance_coefficient}
    if family == "mixtral":
        return {**numbers, "num_local_experts": e.count}
    shared = {"shared_expert_intermediate_size": e.shared_ffn_hidden} if family == "qwen2_moe" else {}
    return {
        **numbers,
        **shared,
        "num_experts": e.count,
        "moe_intermediate_size": e.ffn_hidden,
        "decoder_sparse_step": e.layer_every,
        "mlp_only_layers": sorted(e.dense_layers),
        "norm_topk_prob": a.renormalise,
        **({"qkv_bias": a.model.qkv_bias} if family == "qwen2_moe" else {}),
    }
