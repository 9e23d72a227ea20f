"""Dense decoders. Each table follows the architecture's implementation in Hugging Face `transformers`."""

from __future__ import annotations

from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.families.family import Family, Fields

LLAMA_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn_hidden": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "vocab": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
}
GPT2_KEYS = {
    "layers": ("n_layer", "num_hidden_layers", "num_layers"),
    "hidden": ("n_embd", "hidden_size"),
    "heads": ("n_head", "num_attention_heads"),
    "ffn_hidden": ("n_inner", "intermediate_size", "ffn_hidden_size"),
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


def llama_biases(reader: ConfigReader, fields: Fields) -> Fields:
    """`attention_bias` stands for all four projections."""
    bias = reader.boolean("attention_bias", False)
    return {"qkv_bias": bias, "attention_out_bias": bias}


def learned_positions(reader: ConfigReader, fields: Fields) -> Fields:
    """One learned row a position."""
    return {"position_rows": fields["max_positions"]}


DENSE = {
    "llama": Family(
        keys=LLAMA_KEYS,
        switches={**UNTIED, "mlp_bias": ("mlp_bias", False)},
        defaults={"max_positions": 2048},
        more=llama_biases,
    ),
    "gpt2": Family(
        keys=GPT2_KEYS,
        fixed={**BIASED, "positions": "learned"},
        switches=TIED,
        defaults={"max_positions": 1024},
        ffn_multiple=4,
        more=learned_positions,
    ),
}
