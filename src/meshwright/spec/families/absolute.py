"""Dense models with learned or ALiBi positions: GPT-2, OPT, BLOOM, MPT, BERT."""

from __future__ import annotations

from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.families.family import Family, Fields
from meshwright.spec.families.keys import BIASED, GPT2_KEYS, LLAMA_KEYS, TIED, learned_positions

_BIASES = ("qkv_bias", "attention_out_bias", "mlp_bias")


def _gpt_bigcode(reader: ConfigReader, fields: Fields) -> Fields:
    kv_heads = 1 if reader.boolean("multi_query", True) else fields["heads"]
    return {**learned_positions(reader, fields), "kv_heads": kv_heads}


def _opt(reader: ConfigReader, fields: Fields) -> Fields:
    """The position table has two rows before the first; a narrow table is projected to hidden and back (350m)."""
    pre_norm = reader.boolean("do_layer_norm_before", True)
    width = reader.integer("word_embed_proj_dim", default=fields["hidden"])
    if not reader.boolean("layer_norm_elementwise_affine", True):
        raise reader.error("layer_norm_elementwise_affine", False, "true")
    return {
        "position_rows": fields["max_positions"] + 2,
        "embedding_dim": width if width != fields["hidden"] else 0,
        "final_norm": pre_norm and not reader.boolean("_remove_final_layer_norm", False),
        **dict.fromkeys(_BIASES, reader.boolean("enable_bias", True)),
    }


def _mpt(reader: ConfigReader, fields: Fields) -> Fields:
    """MPT: `no_bias` also takes the biases of the norms; ALiBi or rotary positions replace the learned table."""
    attention = reader.section("attn_config")
    alibi, rope = attention.boolean("alibi", True), attention.boolean("rope", False)
    learned = reader.boolean("learned_pos_emb", True) and not alibi and not rope
    bias = not reader.boolean("no_bias", True)
    ratio = reader.integer("expansion_ratio", default=4)
    grouped = {
        "multihead_attention": fields["heads"],
        "multiquery_attention": 1,
        "grouped_query_attention": attention.integer("kv_n_heads", default=fields["heads"]),
    }
    kind = attention.text("attn_type", "multihead_attention")
    if kind not in grouped:
        raise attention.error("attn_type", kind, f"one of {', '.join(grouped)}")
    return {
        "kv_heads": grouped[kind],
        "ffn_hidden": ratio * fields["hidden"],
        "norm": "layernorm" if bias else "layernorm-nobias",
        "positions": "alibi" if alibi else "rotary" if rope else "learned",
        "position_rows": fields["max_positions"] if learned else 0,
        **dict.fromkeys(_BIASES, bias),
    }


def _bert(reader: ConfigReader, fields: Fields) -> Fields:
    """The head that `architectures` names: masked language model, with pooler and sentence head for pre-training."""
    named = reader.strings("architectures") or ("BertForMaskedLM",)
    pretraining = named[0] == "BertForPreTraining"
    if not pretraining and named[0] != "BertForMaskedLM":
        reader.warnings.append(f"{named[0]} is read as BertForMaskedLM, the model that is pre-trained")
    return {**learned_positions(reader, fields), "pooler": pretraining, "sentence_head": pretraining}


ABSOLUTE = {
    "gpt2": Family(
        keys=GPT2_KEYS,
        fixed={**BIASED, "positions": "learned"},
        switches=TIED,
        ffn_multiple=4,
        more=learned_positions,
    ),
    "gpt_bigcode": Family(
        keys=GPT2_KEYS,
        fixed={**BIASED, "positions": "learned"},
        switches=TIED,
        ffn_multiple=4,
        more=_gpt_bigcode,
    ),
    "opt": Family(
        keys={**LLAMA_KEYS, "ffn_hidden": ("ffn_dim", "intermediate_size")},
        fixed={**BIASED, "positions": "learned"},
        switches=TIED,
        more=_opt,
    ),
    "bloom": Family(
        keys={**LLAMA_KEYS, "hidden": ("hidden_size", "n_embed")},
        fixed={**BIASED, "positions": "alibi", "embedding_norm": True},
        switches=TIED,
        defaults={"max_positions": 2048},
        ffn_multiple=4,
    ),
    "mpt": Family(
        keys={
            "layers": ("n_layers", "num_hidden_layers"),
            "hidden": ("d_model", "hidden_size"),
            "heads": ("n_heads", "num_attention_heads"),
            "vocab": ("vocab_size",),
            "max_positions": ("max_seq_len",),
        },
        fixed={"gated_mlp": False},
        switches=TIED,
        ffn_multiple=4,
        more=_mpt,
    ),
    "bert": Family(
        keys={**LLAMA_KEYS, "token_types": ("type_vocab_size",)},
        fixed={
            **BIASED,
            "positions": "learned",
            "embedding_norm": True,
            "final_norm": False,
            "mlm_head": True,
            "head_bias": True,
            "causal": False,
        },
        switches=TIED,
        defaults={"token_types": 2},
        more=_bert,
    ),
}
