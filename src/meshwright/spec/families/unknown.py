"""Architectures without a table: what is refused, and what is read as a Llama with a warning."""

from __future__ import annotations

from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.families.family import Family, Fields
from meshwright.spec.families.keys import LLAMA_KEYS, ROTARY_POSITIONS, UNTIED, attention_bias
from meshwright.spec.model import Experts

_STATE_SPACE = "state-space or linear-attention layers are not modelled"
_ENCODER_DECODER = "encoder-decoder models are not modelled"
REFUSED = {
    **dict.fromkeys(
        ("mamba", "mamba2", "jamba", "bamba", "falcon_mamba", "falcon_h1", "nemotron_h", "zamba", "zamba2", "rwkv"),
        _STATE_SPACE,
    ),
    **dict.fromkeys(("qwen3_next", "recurrent_gemma", "minimax", "granitemoehybrid", "lfm2", "xlstm"), _STATE_SPACE),
    **dict.fromkeys(("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "whisper"), _ENCODER_DECODER),
}
"""`model_type` -> why no decoder with attention and feed-forward layers stands for it."""

_COUNT = ("num_experts", "num_local_experts", "n_routed_experts")


def _guess(reader: ConfigReader, fields: Fields) -> Fields:
    """Biases, and a mixture of experts where its keys are there."""
    more = attention_bias(reader, fields)
    if reader.find("kv_lora_rank")[1] is not None:
        raise reader.error("model_type", reader.text("model_type"), "deepseek_v2 or deepseek_v3 for latent attention")
    if reader.find(*_COUNT)[1] is None:
        return more
    width = reader.integer("moe_intermediate_size", default=fields["ffn_hidden"])
    shared = reader.integer("n_shared_experts", "num_shared_experts", default=0, smallest=0)
    experts = Experts(
        reader.integer(*_COUNT),
        reader.integer("num_experts_per_tok", "experts_per_token"),
        width,
        shared_ffn_hidden=shared * width,
        first_dense_layers=reader.integer("first_k_dense_replace", default=0, smallest=0),
    )
    return {**more, "experts": experts}


UNKNOWN = Family(
    keys=LLAMA_KEYS,
    switches={**UNTIED, "mlp_bias": ("mlp_bias", False)},
    defaults=ROTARY_POSITIONS,
    more=_guess,
)
"""Read as a Llama: RMSNorm, rotary positions, gated feed-forward, untied unless `tie_word_embeddings`."""
