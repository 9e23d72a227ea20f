"""What several families share: names of keys, biases, windows."""

from __future__ import annotations

from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.families.family import Fields

LLAMA_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn_hidden": ("intermediate_size", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length"),
}
GPT2_KEYS = {
    "layers": ("n_layer", "num_hidden_layers"),
    "hidden": ("n_embd", "hidden_size"),
    "heads": ("n_head", "num_attention_heads"),
    "ffn_hidden": ("n_inner", "intermediate_size"),
    "vocab": ("vocab_size",),
    "max_positions": ("n_positions", "max_position_embeddings"),
}
BIASED = {
    "gated_mlp": False,
    "norm": "layernorm",
    "qkv_bias": True,
    "attention_out_bias": True,
    "mlp_bias": True,
}
UNTIED = {"tied_embeddings": ("tie_word_embeddings", False)}
TIED = {"tied_embeddings": ("tie_word_embeddings", True)}
ROTARY_POSITIONS = {"max_positions": 2048}
"""Context length where a configuration with rotary positions gives none; no parameter depends on it."""


def attention_bias(reader: ConfigReader, fields: Fields) -> Fields:
    """`attention_bias` stands for all four projections."""
    bias = reader.boolean("attention_bias", False)
    return {"qkv_bias": bias, "attention_out_bias": bias}


def learned_positions(reader: ConfigReader, fields: Fields) -> Fields:
    """One learned row a position."""
    return {"position_rows": fields["max_positions"]}


def window(reader: ConfigReader, fields: Fields, every: int, default: int = 0) -> Fields:
    """Sliding windows: `sliding_window` tokens, in the layers that `layer_types` names, else all but each `every`-th.

    A pattern that is not periodic is read as the period with the nearest number of windowed layers, with a warning.
    """
    tokens = reader.integer("sliding_window", default=default, smallest=0)
    kinds = reader.strings("layer_types")
    windowed = [kind != "full_attention" for kind in kinds]
    if not tokens or (kinds and not any(windowed)):
        return {}
    if kinds and all(windowed):
        every = 1
    elif kinds:
        every = max(2, windowed.index(False) + 1)
        if any(w != bool((i + 1) % every) for i, w in enumerate(windowed)):
            every = max(2, round(len(windowed) / windowed.count(False)))
            reader.warnings.append(f"layer_types is irregular: read as full attention in every {every}th layer")
    return {"attention_window": tokens, "window_every": every}
