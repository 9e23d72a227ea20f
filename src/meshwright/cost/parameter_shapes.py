"""Every parameter of the Decoder (`train/models`) by name and shape, and how tensor ranks cut it. Without torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.cost.parameters import attention_matrices, mlp_matrices, parameters
from meshwright.spec.errors import ModelError
from meshwright.spec.model import Experts, LatentAttention, Model


@dataclass(frozen=True, slots=True)
class ParameterShape:
    """One parameter of the whole model."""

    name: str
    """As `Decoder.named_parameters` has it."""
    shape: tuple[int, ...]
    place: str
    """The module of the model's order that holds it: embed, layers.<i>, norm or head."""
    cut: str = "whole"
    """What tensor ranks cut: rows, kv (rows, whole heads), columns, vocabulary (padded rows), features or
    down_features (of stacked experts), or nothing: whole."""
    partial: str = ""
    """Its gradient is partial on each tensor rank: sequence (where they hold pieces of the sequence) or always."""

    @property
    def numel(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


def parameter_shapes(model: Model) -> tuple[ParameterShape, ...]:
    """The parameters in the order of `Decoder.named_parameters`; a tied head has none of its own.

    Raises ModelError for a model that has parameters which the Decoder does not know.
    """
    found = (
        *_embedding(model),
        *(one for layer in range(model.layers) for one in _layer(model, layer)),
        *_norm(model, "norm", model.hidden, "norm"),
        *_head(model),
    )
    if sum(one.numel for one in found) + _corrections(model) != parameters(model).total or model.head_bias:
        raise ModelError(f"{model.name} has parameters that the decoder does not have: its traffic is not known.")
    return found


def _embedding(model: Model) -> Iterator[ParameterShape]:
    yield ParameterShape("embed.tokens.weight", (model.vocab, model.hidden), "embed", "vocabulary")
    if model.positions == "learned":
        yield ParameterShape("embed.positions.weight", (model.position_rows, model.hidden), "embed", partial="sequence")


def _head(model: Model) -> Iterator[ParameterShape]:
    if not model.tied_embeddings:
        yield ParameterShape("head.weight", (model.vocab, model.hidden), "head", "vocabulary")


def _layer(model: Model, index: int) -> Iterator[ParameterShape]:
    place = f"layers.{index}"
    yield from _norm(model, f"{place}.attention_norm", model.hidden, place)
    yield from _attention(model, f"{place}.attention", place)
    yield from _norm(model, f"{place}.mlp_norm", model.hidden, place)
    if model.experts is not None and model.is_moe_layer(index):
        yield from _mixture(model, model.experts, f"{place}.moe", place)
    else:
        yield from _mlp(model, f"{place}.mlp", model.ffn_hidden, place)


def _corrections(model: Model) -> int:
    """Numbers in the biases of DeepSeek-V3's routers: buffers, which no gradient reaches."""
    e = model.experts
    return model.moe_layers * e.count if e is not None and e.router_bias and model.latent is not None else 0


def _attention(model: Model, name: str, place: str) -> Iterator[ParameterShape]:
    if model.latent is not None:
        yield from _latent_attention(model, model.latent, name, place)
        return
    cuts = {"q": "rows", "k": "kv", "v": "kv", "o": "columns"}
    for key, (inputs, outputs, bias) in attention_matrices(model).items():
        yield from _linear(f"{name}.{key}", inputs, outputs, bias, place, cuts.get(key, "whole"))
    if model.qk_norm == "head":
        for key in ("q_norm", "k_norm"):
            yield from _norm(model, f"{name}.{key}", model.head_dim, place, "always")


def _latent_attention(model: Model, m: LatentAttention, name: str, place: str) -> Iterator[ParameterShape]:
    """What leads to the latents acts on each token alone; what makes heads of them is cut by heads."""
    ranks = {"q_down": ("q_norm", m.q_lora_rank, "sequence"), "kv_down": ("kv_norm", m.kv_lora_rank, "always")}
    for key, (inputs, outputs, bias) in attention_matrices(model).items():
        cut = "whole" if key in ranks else "columns" if key == "o" else "rows"
        yield from _linear(f"{name}.{key}", inputs, outputs, bias, place, cut)
        if key in ranks:
            norm, width, partial = ranks[key]
            yield from _norm(model, f"{name}.{norm}", width, place, partial)


def _mlp(model: Model, name: str, width: int, place: str) -> Iterator[ParameterShape]:
    for key, (inputs, outputs, bias) in mlp_matrices(model, width, model.mlp_bias).items():
        yield from _linear(f"{name}.{key}", inputs, outputs, bias, place, "columns" if key == "down" else "rows")


def _mixture(model: Model, e: Experts, name: str, place: str) -> Iterator[ParameterShape]:
    h, f = model.hidden, e.ffn_hidden
    yield ParameterShape(f"{name}.router.weight", (e.count, h), place, partial="sequence")
    for key in ("gate", "up"):
        yield ParameterShape(f"{name}.experts.{key}", (e.count, f, h), place, "features")
    yield ParameterShape(f"{name}.experts.down", (e.count, h, f), place, "down_features")
    if e.shared_ffn_hidden:
        yield from _mlp(model, f"{name}.shared", e.shared_ffn_hidden, place)
    if e.shared_gate:
        yield ParameterShape(f"{name}.shared_gate.weight", (1, h), place, partial="sequence")


def _linear(name: str, inputs: int, outputs: int, bias: bool, place: str, cut: str) -> Iterator[ParameterShape]:
    yield ParameterShape(f"{name}.weight", (outputs, inputs), place, cut, "sequence" if cut == "whole" else "")
    if bias:
        # What is cut by columns is summed over ranks: its bias, added once after the sum, is whole.
        whole = cut in ("columns", "whole")
        yield ParameterShape(f"{name}.bias", (outputs,), place, "whole" if whole else cut, "sequence" if whole else "")


def _norm(model: Model, name: str, width: int, place: str, partial: str = "sequence") -> Iterator[ParameterShape]:
    yield ParameterShape(f"{name}.weight", (width,), place, partial=partial)
    if model.norm == "layernorm":
        yield ParameterShape(f"{name}.bias", (width,), place, partial=partial)
