"""An Architecture from a Hugging Face `config.json`; what the Decoder cannot compute exactly is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.spec.config_reader import ConfigReader, shorten
from meshwright.spec.errors import ModelError
from meshwright.spec.model import Model
from meshwright.spec.model_config import read_config
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.read_rope import number, read_rope
from meshwright.train.models.read_routing import CORRECTION, balance_coefficient, read_routing, renormalise

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
    "deepseek_v2": 1e-6,
    "deepseek_v3": 1e-6,
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
WINDOWED = ("mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
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
    rotary, latent = model.positions == "rotary", model.latent is not None
    return Architecture(
        model=model,
        norm_eps=number(reader, EPS[model.family], "rms_norm_eps", "layer_norm_epsilon", "norm_epsilon"),
        activation=_activation(reader, model),
        windows=_windows(reader, model),
        rope=read_rope(reader, THETA.get(model.family, 10000.0), model.max_positions, latent=latent)
        if rotary
        else None,
        renormalise=renormalise(reader, model),
        routing=read_routing(reader, model),
        balance_coefficient=balance_coefficient(reader, model),
        init_std=number(reader, 0.02, "initializer_range"),
        notes=_notes(reader, model),
        config={str(k): v for k, v in config.items() if not str(k).startswith("_")},
    )


def check_computable(model: Model, where: str) -> None:
    """Raise ModelError, with the reason where there is a known one, for a model that the Decoder does not compute."""
    reasons = {
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
        and (model.experts.expert_bias or (model.experts.router_bias and model.family != "deepseek_v3")),
        "ungated experts": model.experts is not None and not model.gated_mlp,
    }
    found = [reason for reason, there in reasons.items() if there]
    if found or model.family not in EPS:
        what = f"has {', '.join(found)}, which" if found else f"is of the family {model.family}, which"
        raise ModelError(f"{where}: the model {what} the decoder does not compute exactly.", legal=tuple(EPS))
    key, turning = (
        ("head_dim", model.head_dim) if model.latent is None else ("qk_rope_head_dim", model.latent.qk_rope_head_dim)
    )
    if model.positions == "rotary" and turning % 2:
        raise ModelError(f"{where}: {key} is {turning}, but rotary positions turn pairs of numbers.")


def _activation(reader: ConfigReader, model: Model) -> str:
    default = "silu" if model.gated_mlp else "gelu_new"
    key, value = reader.find("hidden_act", "activation_function", "hidden_activation")
    value = default if value is None else value
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise ModelError(f"{reader.where}: {key} is {shorten(value)}.", legal=tuple(ACTIVATIONS))
    return ACTIVATIONS[value]


def _windows(reader: ConfigReader, model: Model) -> tuple[int, ...]:
    """Each layer's window, by the rules of `transformers`.

    Mistral has one unless `sliding_window` is null; Mixtral where it is given; Qwen where `use_sliding_window` is true:
    Qwen2 and Qwen3 in the layers from `max_window_layers` on, Qwen2-MoE in every other layer before it, Qwen3-MoE in
    all. `layer_types` says otherwise.
    """
    family, absent = model.family, 0 if "sliding_window" in reader.config else 4096
    everywhere = (0,) * model.layers
    if family not in WINDOWED or (family.startswith("qwen") and not reader.boolean("use_sliding_window", False)):
        return everywhere
    window = reader.integer("sliding_window", default=0 if family == "mixtral" else absent, smallest=0)
    kinds = reader.strings("layer_types")
    if kinds and family in ("qwen2", "qwen3", "qwen2_moe"):
        if len(kinds) != model.layers or set(kinds) - {"full_attention", "sliding_attention"}:
            raise reader.error("layer_types", list(kinds), f"{model.layers} of full_attention and sliding_attention")
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    first = reader.integer("max_window_layers", default=28, smallest=0)
    if family in ("qwen2", "qwen3"):
        return tuple(window if i >= first else 0 for i in range(model.layers))
    if family == "qwen2_moe":
        return tuple(window if i % 2 == 0 and i < first else 0 for i in range(model.layers))
    return (window,) * model.layers


def _notes(reader: ConfigReader, model: Model) -> tuple[str, ...]:
    """What is left out: dropout. Raises ModelError for switches that change the numbers."""
    for key, legal in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if model.family == "gpt2" and reader.boolean(key, legal) is not legal:
            raise reader.error(key, not legal, str(legal).lower())
    if number(reader, 0.0, "router_jitter_noise"):
        raise reader.error("router_jitter_noise", reader.config["router_jitter_noise"], "0")
    dropped = [f"{key} = {reader.config[key]}" for key in DROPOUTS if number(reader, 0.0, key)]
    notes = model.warnings + ((f"no dropout is applied ({', '.join(dropped)})",) if dropped else ())
    corrected = model.experts is not None and model.experts.router_bias
    return notes + ((CORRECTION,) if corrected else ())
