"""An Architecture from a Hugging Face `config.json`; what the Decoder cannot compute exactly is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from meshwright.spec.config_reader import ConfigReader, shorten
from meshwright.spec.errors import ModelError
from meshwright.spec.model import Model
from meshwright.spec.model_config import read_config
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.positions import ROPE_KINDS, Rope

EPS = {
    "gpt2": 1e-5,
    "megatron": 1e-5,
    "llama": 1e-6,
    "mistral": 1e-6,
    "qwen2": 1e-6,
    "qwen3": 1e-6,
    "mixtral": 1e-5,
    "qwen2_moe": 1e-6,
    "qwen3_moe": 1e-6,
}
"""The families that the Decoder computes, with the norm's epsilon where the configuration has none (transformers)."""
THETA = {"mixtral": 1e6}
"""Base of the rotary frequencies where the configuration has none; 10,000 for the other families (transformers)."""
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
"""Names in configurations → names in `mlp.ACTIVATIONS`."""
DROPOUTS = ("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop")


def read_architecture(config: Mapping[str, Any], name: str = "model") -> Architecture:
    """The architecture that a Hugging Face configuration describes.

    Absent keys mean what they mean in `transformers`. Raises ModelError for what `read_config` refuses, and for what
    the Decoder would not compute exactly.
    """
    model = read_config(config, name)
    if isinstance(config.get("text_config"), Mapping):
        raise ModelError(f"{name}: the text model of a multimodal one is not trained. Name its own configuration.")
    return make_architecture(model, config, name)


def make_architecture(model: Model, config: Mapping[str, Any], where: str) -> Architecture:
    """The architecture of `model`, whose remaining numbers `config` holds. Raises ModelError."""
    check_computable(model, where)
    reader = ConfigReader(config, where)
    if config.get("quantization_config") is not None:
        raise ModelError(f"{where}: quantised weights (quantization_config) are not trained.")
    return Architecture(
        model=model,
        norm_eps=number(reader, EPS[model.family], "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"),
        activation=_activation(reader, model),
        windows=_windows(reader, model),
        rope=_rope(reader, model) if model.positions == "rotary" else None,
        renormalise=model.family == "mixtral" or reader.boolean("norm_topk_prob", False),
        balance_coefficient=number(reader, 0.001, "router_aux_loss_coef") if model.moe_layers else 0.0,
        init_std=number(reader, 0.02, "initializer_range"),
        notes=_notes(reader, model),
        config=json.loads(json.dumps({k: v for k, v in config.items() if not k.startswith("_")})),
    )


def check_computable(model: Model, where: str) -> None:
    """Raise ModelError, with the reason where there is a known one, for a model that the Decoder does not compute."""
    reasons = {
        "multi-head latent attention": model.latent is not None,
        "ALiBi positions": model.positions == "alibi",
        "attention and feed-forward side by side": model.parallel_block,
        "attention sinks": model.attention_sinks,
        "attention that is not causal": not model.causal,
        f"{model.norms_per_layer} norms a layer": model.norms_per_layer != 2,
        "norms over whole queries and keys": model.qk_norm == "full",
        "an embedding of another width": bool(model.embedding_dim),
        "a norm after the embedding": model.embedding_norm,
        "no final norm": not model.final_norm,
        "biases of experts or router": model.experts is not None
        and (model.experts.router_bias or model.experts.expert_bias),
        "ungated experts": model.experts is not None and not model.gated_mlp,
    }
    found = [reason for reason, there in reasons.items() if there]
    if found or model.family not in EPS:
        what = f"has {', '.join(found)}, which" if found else f"is of the family {model.family}, which"
        raise ModelError(f"{where}: the model {what} the decoder does not compute exactly.", legal=tuple(EPS))
    if model.positions == "rotary" and model.head_dim % 2:
        raise ModelError(f"{where}: head_dim is {model.head_dim}, but rotary positions turn pairs of numbers.")


def number(reader: ConfigReader, default: float, *keys: str) -> float:
    """A finite number that is not negative. Raises ModelError."""
    key, value = reader.find(*keys)
    if value is None:
        return default
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not math.isfinite(value) or value < 0:
        raise reader.error(key, value, "a number from 0")
    return float(value)


def _activation(reader: ConfigReader, model: Model) -> str:
    default = "gelu_new" if model.family in ("gpt2", "megatron") else "silu"
    key, value = reader.find("hidden_act", "activation_function", "hidden_activation")
    value = default if value is None else value
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise ModelError(f"{reader.where}: {key} is {shorten(value)}.", legal=tuple(ACTIVATIONS))
    return ACTIVATIONS[value]


def _windows(reader: ConfigReader, model: Model) -> tuple[int, ...]:
    """Each layer's window. Qwen's is off unless asked for, and then only from `max_window_layers` on."""
    everywhere = (0,) * model.layers
    if model.family.startswith("qwen") and not reader.boolean("use_sliding_window", False):
        return everywhere
    window = reader.integer("sliding_window", default=0) if model.family in WINDOWED else 0
    kinds = reader.strings("layer_types")
    if kinds:
        if len(kinds) != model.layers or set(kinds) - {"full_attention", "sliding_attention"}:
            legal = f"{model.layers} times full_attention or sliding_attention"
            raise reader.error("layer_types", list(kinds), legal)
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    first = reader.integer("max_window_layers", default=28, smallest=0) if model.family.startswith("qwen") else 0
    return tuple(window if i >= first else 0 for i in range(model.layers))


WINDOWED = ("mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe")


def _rope(reader: ConfigReader, model: Model) -> Rope:
    """Rotary frequencies: `rope_parameters` (transformers 5), else `rope_theta` and `rope_scaling`."""
    new = reader.find("rope_parameters")[1] is not None
    inner = reader.section("rope_parameters" if new else "rope_scaling")
    kind = inner.text("rope_type") or inner.text("type") or "default"
    if kind not in ROPE_KINDS:
        raise ModelError(f"{inner.where}: rope_type is {shorten(kind)}.", legal=ROPE_KINDS)
    for r in (reader, inner):
        if number(r, 1.0, "partial_rotary_factor") != 1.0:
            raise r.error("partial_rotary_factor", r.config["partial_rotary_factor"], "1")
    outer_theta = number(reader, THETA.get(model.family, 10000.0), "rope_theta")
    theta = number(inner, outer_theta, "rope_theta")
    if theta <= 1:
        raise inner.error("rope_theta", theta, "above 1")
    if kind == "default":
        return Rope(theta)
    factor = number(inner, 0.0, "factor")
    if factor < 1:
        raise inner.error("factor", inner.config.get("factor"), "a number from 1")
    if kind == "linear":
        return Rope(theta, kind, factor)
    original = reader.integer("original_max_position_embeddings", default=model.max_positions)
    original = inner.integer("original_max_position_embeddings", default=original)
    if kind == "llama3":
        low, high = number(inner, 1.0, "low_freq_factor"), number(inner, 4.0, "high_freq_factor")
        if not 0 < low < high:
            raise inner.error("high_freq_factor", high, f"above low_freq_factor, {low}")
        return Rope(theta, kind, factor, original, low, high)
    return Rope(
        theta,
        kind,
        factor,
        original,
        beta_fast=number(inner, 32.0, "beta_fast"),
        beta_slow=number(inner, 1.0, "beta_slow"),
        truncate=inner.boolean("truncate", True),
        attention_factor=_yarn_attention(inner, factor),
    )


def _yarn_attention(reader: ConfigReader, factor: float) -> float:
    """What cosine and sine are multiplied by (arXiv:2309.00071 equation 22, and DeepSeek's `mscale`)."""

    def scale(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    mscale, all_dim = number(reader, 0.0, "mscale"), number(reader, 0.0, "mscale_all_dim")
    inferred = scale(mscale) / scale(all_dim) if mscale and all_dim else scale(1.0)
    return number(reader, inferred, "attention_factor")


def _notes(reader: ConfigReader, model: Model) -> tuple[str, ...]:
    """What is left out: dropout. Raises ModelError for switches that change the numbers."""
    for key, legal in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if model.family == "gpt2" and reader.boolean(key, legal) is not legal:
            raise reader.error(key, not legal, str(legal).lower())
    dropped = [f"{key} = {reader.config[key]}" for key in DROPOUTS if number(reader, 0.0, key)]
    return model.warnings + ((f"no dropout is applied ({', '.join(dropped)})",) if dropped else ())
