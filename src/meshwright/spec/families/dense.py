"""Dense decoders with rotary positions. Each table follows the implementation in Hugging Face `transformers`."""

from __future__ import annotations

from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.families.family import Family, Fields
from meshwright.spec.families.keys import (
    BIASED,
    GPT2_KEYS,
    LLAMA_KEYS,
    ROTARY_POSITIONS,
    TIED,
    UNTIED,
    attention_bias,
    window,
)


def _mistral(reader: ConfigReader, fields: Fields) -> Fields:
    return window(reader, fields, every=1)


def _qwen_window(reader: ConfigReader, fields: Fields) -> Fields:
    """Qwen's window is off unless `use_sliding_window`, and then only in layers from `max_window_layers` on."""
    if not reader.boolean("use_sliding_window", False):
        return {}
    first = reader.integer("max_window_layers", default=0, smallest=0)
    if first and not reader.strings("layer_types"):
        reader.warnings.append(f"the sliding window of the layers from {first} on is read as full attention")
        return {}
    return window(reader, fields, every=1)


def _qwen3(reader: ConfigReader, fields: Fields) -> Fields:
    return {**attention_bias(reader, fields), **_qwen_window(reader, fields)}


def _gemma2(reader: ConfigReader, fields: Fields) -> Fields:
    return {**attention_bias(reader, fields), **window(reader, fields, every=2, default=4096)}


def _gemma3(reader: ConfigReader, fields: Fields) -> Fields:
    every = reader.integer("sliding_window_pattern", default=6)
    return {**attention_bias(reader, fields), **window(reader, fields, every=every, default=4096)}


def _internlm(reader: ConfigReader, fields: Fields) -> Fields:
    bias = reader.boolean("bias", True)
    return {"qkv_bias": bias, "attention_out_bias": bias}


def _qwen(reader: ConfigReader, fields: Fields) -> Fields:
    """The first Qwen's `intermediate_size` is that of gate and up together."""
    return {"ffn_hidden": fields["ffn_hidden"] // 2 or 1}


def _baichuan(reader: ConfigReader, fields: Fields) -> Fields:
    """The 7B has rotary positions; the 13B has ALiBi, and `model_max_length` alone."""
    rotary = reader.find("max_position_embeddings")[1] is not None
    return {"positions": "rotary" if rotary else "alibi"}


def _phi(reader: ConfigReader, fields: Fields) -> Fields:
    if reader.boolean("qk_layernorm", False):
        raise reader.error("qk_layernorm", True, "false: Phi's query and key norms are not modelled")
    return {}


def _starcoder2(reader: ConfigReader, fields: Fields) -> Fields:
    bias = reader.boolean("use_bias", True)
    biases = dict.fromkeys(("qkv_bias", "attention_out_bias", "mlp_bias"), bias)
    return {**biases, **window(reader, fields, every=1)}


def _falcon(reader: ConfigReader, fields: Fields) -> Fields:
    """Falcon-7B: one key-value head, one norm; Falcon-40B: `num_kv_heads` and two norms."""
    new = reader.boolean("new_decoder_architecture", False)
    parallel = new or reader.boolean("parallel_attn", True)
    bias = reader.boolean("bias", False)
    norms = reader.integer("num_ln_in_parallel_attn", default=2) if new else 1 if parallel else 2
    heads = reader.integer("num_kv_heads", default=fields["heads"])
    multi_query = reader.boolean("multi_query", True)
    return {
        "kv_heads": heads if new else 1 if multi_query else fields["heads"],
        "parallel_block": parallel,
        "norms_per_layer": norms,
        "positions": "alibi" if reader.boolean("alibi", False) else "rotary",
        **dict.fromkeys(("qkv_bias", "attention_out_bias", "mlp_bias"), bias),
    }


_LLAMA = Family(
    keys=LLAMA_KEYS,
    switches={**UNTIED, "mlp_bias": ("mlp_bias", False)},
    defaults=ROTARY_POSITIONS,
    more=attention_bias,
)

DENSE = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "internlm": Family(keys=LLAMA_KEYS, switches=UNTIED, defaults=ROTARY_POSITIONS, more=_internlm),
    "internlm2": Family(keys=LLAMA_KEYS, switches=UNTIED, defaults=ROTARY_POSITIONS),
    "mistral": Family(keys=LLAMA_KEYS, switches=UNTIED, defaults=ROTARY_POSITIONS, more=_mistral),
    "baichuan": Family(
        keys={**LLAMA_KEYS, "max_positions": ("max_position_embeddings", "model_max_length")},
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        more=_baichuan,
    ),
    "qwen": Family(
        keys=LLAMA_KEYS,
        fixed={"qkv_bias": True},
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        more=_qwen,
    ),
    "qwen2": Family(
        keys=LLAMA_KEYS,
        fixed={"qkv_bias": True},
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        more=_qwen_window,
    ),
    "qwen3": Family(
        keys=LLAMA_KEYS,
        fixed={"qk_norm": "head"},
        switches=UNTIED,
        defaults={**ROTARY_POSITIONS, "head_dim": 128},
        more=_qwen3,
    ),
    "gemma": Family(
        keys=LLAMA_KEYS,
        switches=TIED,
        defaults={**ROTARY_POSITIONS, "head_dim": 256},
        more=attention_bias,
    ),
    "gemma2": Family(
        keys=LLAMA_KEYS,
        fixed={"norms_per_layer": 4},
        switches=TIED,
        defaults={**ROTARY_POSITIONS, "head_dim": 256},
        more=_gemma2,
    ),
    "gemma3_text": Family(
        keys=LLAMA_KEYS,
        fixed={"norms_per_layer": 4, "qk_norm": "head"},
        switches=TIED,
        defaults={**ROTARY_POSITIONS, "head_dim": 256},
        more=_gemma3,
    ),
    "olmo2": Family(
        keys=LLAMA_KEYS,
        fixed={"qk_norm": "full"},
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        more=attention_bias,
    ),
    "phi": Family(
        keys=LLAMA_KEYS,
        fixed={**BIASED, "parallel_block": True, "norms_per_layer": 1, "head_bias": True},
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        more=_phi,
    ),
    "phi3": Family(keys=LLAMA_KEYS, switches=UNTIED, defaults=ROTARY_POSITIONS, more=_mistral),
    "gpt_neox": Family(
        keys=LLAMA_KEYS,
        fixed=BIASED,
        switches={
            **UNTIED,
            "parallel_block": ("use_parallel_residual", True),
            "qkv_bias": ("attention_bias", True),
            "attention_out_bias": ("attention_bias", True),
        },
        defaults=ROTARY_POSITIONS,
    ),
    "gptj": Family(
        keys=GPT2_KEYS,
        fixed={
            "gated_mlp": False,
            "norm": "layernorm",
            "mlp_bias": True,
            "parallel_block": True,
            "norms_per_layer": 1,
            "head_bias": True,
        },
        switches=UNTIED,
        defaults=ROTARY_POSITIONS,
        ffn_multiple=4,
    ),
    "starcoder2": Family(
        keys=LLAMA_KEYS,
        fixed={"gated_mlp": False, "norm": "layernorm"},
        switches=TIED,
        defaults=ROTARY_POSITIONS,
        more=_starcoder2,
    ),
    "nemotron": Family(
        keys=LLAMA_KEYS,
        fixed={"gated_mlp": False, "norm": "layernorm"},
        switches={**UNTIED, "mlp_bias": ("mlp_bias", False)},
        defaults=ROTARY_POSITIONS,
        more=attention_bias,
    ),
    "falcon": Family(
        keys={**LLAMA_KEYS, "ffn_hidden": ("ffn_hidden_size",)},
        fixed={"gated_mlp": False, "norm": "layernorm"},
        switches=TIED,
        defaults=ROTARY_POSITIONS,
        ffn_multiple=4,
        more=_falcon,
    ),
}
