"""Megatron-LM: its own arguments (`model_type` megatron), read with its defaults.

The defaults are a GPT's: LayerNorm, biases everywhere, learned positions, tied embeddings
(https://github.com/NVIDIA/Megatron-LM, megatron/training/arguments.py).
"""

from __future__ import annotations

from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.families.family import Family, Fields
from meshwright.spec.model import Experts


def _arguments(reader: ConfigReader, fields: Fields) -> Fields:
    """Megatron-LM's arguments, with its defaults (GPT: LayerNorm, biases everywhere, learned positions, tied)."""
    bias = reader.boolean("add_bias_linear", True)
    norm = reader.text("normalization", "LayerNorm")
    positions = reader.text("position_embedding_type", "learned_absolute")
    kinds = {"learned_absolute": "learned", "rope": "rotary"}
    if norm not in ("LayerNorm", "RMSNorm"):
        raise reader.error("normalization", norm, "LayerNorm or RMSNorm")
    if positions not in kinds:
        raise reader.error("position_embedding_type", positions, f"one of {', '.join(kinds)}")
    ffn = fields.get("ffn_hidden", _ffn(fields["hidden"], reader.boolean("swiglu", False)))
    grouped = reader.boolean("group_query_attention", True)
    return {
        "norm": "rmsnorm" if norm == "RMSNorm" else "layernorm",
        "positions": kinds[positions],
        "position_rows": fields["max_positions"] if kinds[positions] == "learned" else 0,
        "gated_mlp": reader.boolean("swiglu", False),
        "kv_heads": fields.get("kv_heads", fields["heads"]) if grouped else fields["heads"],
        "ffn_hidden": ffn,
        "qkv_bias": bias or reader.boolean("add_qkv_bias", False),
        "attention_out_bias": bias,
        "mlp_bias": bias,
        "qk_norm": "head" if reader.boolean("qk_layernorm", False) else "none",
        "tied_embeddings": not reader.boolean("untie_embeddings_and_output_weights", False),
        "experts": _experts(reader, fields, ffn, bias),
    }


def _ffn(hidden: int, gated: bool) -> int:
    """Megatron-LM's default width: 4 × hidden, and for SwiGLU two thirds of it, down to a multiple of 64."""
    return max(64, int(4 * hidden * 2 / 3) // 64 * 64) if gated else 4 * hidden


def _experts(reader: ConfigReader, fields: Fields, ffn: int, bias: bool) -> Experts | None:
    if reader.find("num_experts")[1] is None:
        return None
    every = reader.integer("moe_layer_freq", default=1)
    return Experts(
        reader.integer("num_experts"),
        reader.integer("moe_router_topk", default=2),
        reader.integer("moe_ffn_hidden_size", default=ffn),
        shared_ffn_hidden=reader.integer("moe_shared_expert_intermediate_size", default=0),
        expert_bias=bias,
        dense_layers=frozenset(i for i in range(fields["layers"]) if i % every),
    )


_KEYS = {
    "layers": ("num_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_query_groups",),
    "head_dim": ("kv_channels",),
    "ffn_hidden": ("ffn_hidden_size",),
    "vocab": ("padded_vocab_size", "vocab_size"),
    "max_positions": ("max_position_embeddings", "seq_length"),
}

MEGATRON = {"megatron": Family(keys=_KEYS, ffn_multiple=4, more=_arguments)}
