"""Mixtures of experts. Each table follows the implementation in Hugging Face `transformers`."""

from __future__ import annotations

from functools import partial

from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.families.family import Family, Fields
from meshwright.spec.families.keys import LLAMA_KEYS, ROTARY_POSITIONS, TIED, UNTIED, attention_bias, window
from meshwright.spec.model import Experts, LatentAttention

_COUNT = ("num_local_experts", "num_experts", "n_routed_experts")
_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "moe_topk")


def _mixtral(reader: ConfigReader, fields: Fields) -> Fields:
    experts = Experts(reader.integer(*_COUNT), reader.integer(*_PER_TOKEN), fields["ffn_hidden"])
    return {"experts": experts, **window(reader, fields, every=1)}


def _grok(reader: ConfigReader, fields: Fields) -> Fields:
    return {"experts": Experts(reader.integer("num_experts"), reader.integer(*_PER_TOKEN), fields["ffn_hidden"])}


def _qwen2_moe(reader: ConfigReader, fields: Fields) -> Fields:
    experts = Experts(
        reader.integer("num_experts", *_COUNT),
        reader.integer(*_PER_TOKEN),
        reader.integer("moe_intermediate_size"),
        shared_ffn_hidden=reader.integer("shared_expert_intermediate_size"),
        shared_gate=True,
        layer_every=reader.integer("decoder_sparse_step", default=1),
        dense_layers=frozenset(reader.integers("mlp_only_layers")),
    )
    return {"experts": experts, "qkv_bias": reader.boolean("qkv_bias", True)}


def _qwen3_moe(reader: ConfigReader, fields: Fields) -> Fields:
    experts = Experts(
        reader.integer("num_experts", *_COUNT),
        reader.integer(*_PER_TOKEN),
        reader.integer("moe_intermediate_size"),
        layer_every=reader.integer("decoder_sparse_step", default=1),
        dense_layers=frozenset(reader.integers("mlp_only_layers")),
    )
    return {"experts": experts, **attention_bias(reader, fields)}


def _olmoe(reader: ConfigReader, fields: Fields) -> Fields:
    experts = Experts(reader.integer("num_experts"), reader.integer(*_PER_TOKEN), fields["ffn_hidden"])
    return {"experts": experts, **attention_bias(reader, fields)}


def _gpt_oss(reader: ConfigReader, fields: Fields) -> Fields:
    experts = Experts(
        reader.integer(*_COUNT),
        reader.integer(*_PER_TOKEN),
        fields["ffn_hidden"],
        router_bias=True,
        expert_bias=True,
    )
    bias = reader.boolean("attention_bias", True)
    biases = {"qkv_bias": bias, "attention_out_bias": bias}
    return {"experts": experts, **biases, **window(reader, fields, every=2, default=128)}


def _llama4(reader: ConfigReader, fields: Fields) -> Fields:
    """Every expert layer has one shared expert of a routed expert's width; chunked attention counts as a window."""
    width = reader.integer("intermediate_size")
    every = reader.integer("interleave_moe_layer_step", default=1)
    count, per_token = reader.integer(*_COUNT), reader.integer(*_PER_TOKEN)
    experts = Experts(count, per_token, width, shared_ffn_hidden=width, layer_every=every)
    chunk = {"attention_window": reader.integer("attention_chunk_size", default=0, smallest=0), "window_every": 4}
    return {"experts": experts, **attention_bias(reader, fields), **(chunk if chunk["attention_window"] else {})}


def _deepseek(reader: ConfigReader, fields: Fields, balanced: bool) -> Fields:
    """DeepSeek-V2 and V3: latent attention, shared experts, first layers dense (arXiv:2405.04434, 2412.19437).

    `balanced`: the checkpoint holds V3's bias of the router, which balances the load without gradients.
    """
    nope, rope = reader.integer("qk_nope_head_dim"), reader.integer("qk_rope_head_dim")
    latent = LatentAttention(
        reader.integer("kv_lora_rank"),
        nope,
        rope,
        reader.integer("v_head_dim"),
        q_lora_rank=reader.integer("q_lora_rank", default=0),
    )
    if reader.integer("num_nextn_predict_layers", default=0, smallest=0):
        reader.warnings.append("num_nextn_predict_layers: the multi-token prediction module is left out")
    return {
        "latent": latent,
        "head_dim": nope + rope,
        "kv_heads": fields["heads"],
        "experts": _deepseek_experts(reader, fields, balanced),
        **attention_bias(reader, fields),
    }


def _deepseek_experts(reader: ConfigReader, fields: Fields, balanced: bool) -> Experts | None:
    """The mixture; None where `n_routed_experts` is absent, as in the dense relatives."""
    if reader.find("n_routed_experts")[1] is None:
        return None
    width, step = reader.integer("moe_intermediate_size"), reader.integer("moe_layer_freq", default=1)
    shared = reader.integer("n_shared_experts", default=0, smallest=0)
    first = reader.integer("first_k_dense_replace", default=0, smallest=0)
    return Experts(
        reader.integer("n_routed_experts"),
        reader.integer(*_PER_TOKEN),
        width,
        shared_ffn_hidden=shared * width,
        first_dense_layers=first,
        router_bias=balanced,
        dense_layers=frozenset(i for i in range(first, fields["layers"]) if i % step),
    )


def _deepseek_family(balanced: bool) -> Family:
    return Family(
        keys={name: keys for name, keys in LLAMA_KEYS.items() if name not in ("kv_heads", "head_dim")},
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        more=partial(_deepseek, balanced=balanced),
    )


MIXTURES = {
    "mixtral": Family(keys=LLAMA_KEYS, switches=UNTIED, defaults=ROTARY_POSITIONS, more=_mixtral),
    "grok-1": Family(
        keys=LLAMA_KEYS,
        fixed={"norms_per_layer": 4},
        switches=TIED,
        defaults=ROTARY_POSITIONS,
        more=_grok,
    ),
    "qwen2_moe": Family(keys=LLAMA_KEYS, switches=UNTIED, defaults=ROTARY_POSITIONS, more=_qwen2_moe),
    "qwen3_moe": Family(
        keys=LLAMA_KEYS,
        fixed={"qk_norm": "head"},
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        more=_qwen3_moe,
    ),
    "olmoe": Family(
        keys=LLAMA_KEYS,
        fixed={"qk_norm": "full"},
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        more=_olmoe,
    ),
    "gpt_oss": Family(
        keys=LLAMA_KEYS,
        fixed={"attention_sinks": True},
        switches=UNTIED,
        defaults={**ROTARY_POSITIONS, "head_dim": 64},
        more=_gpt_oss,
    ),
    "llama4_text": Family(
        keys={**LLAMA_KEYS, "ffn_hidden": ("intermediate_size_mlp",)},
        switches=UNTIED,
        defaults={**ROTARY_POSITIONS, "head_dim": 128},
        more=_llama4,
    ),
    "deepseek_v2": _deepseek_family(balanced=False),
    "deepseek_v3": _deepseek_family(balanced=True),
}
