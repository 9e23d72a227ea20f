"""Decoder: one causal transformer for GPT-2, Llama, DeepSeek and their kin, dense or mixture of experts.

It knows nothing of distribution. Its `recipe` names the modules for those that do.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from meshwright.modes.recipe import Recipe
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.attention import Context
from meshwright.train.models.block import Block
from meshwright.train.models.embed import Embed
from meshwright.train.models.norms import make_norm
from meshwright.train.models.positions import tables
from meshwright.train.models.unset import Linear


class Decoder(nn.Module):
    """`embed`, `layers` ("0", "1", …), `norm`, `head`, called in this order.

    A pipeline stage is this class with a Passthrough in place of what other stages hold, and fewer layers.
    """

    def __init__(self, architecture: Architecture, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        m = architecture.model
        self.architecture = architecture
        self.recipe: Recipe = make_recipe(architecture)
        self.embed: nn.Module = Embed(architecture, device, dtype)
        self.layers = nn.ModuleDict({str(i): Block(architecture, i, device, dtype) for i in range(m.layers)})
        self.norm: nn.Module = make_norm(architecture, m.hidden, device, dtype)
        self.head: nn.Module = Linear(m.hidden, m.vocab, m.head_bias, device, dtype)
        if m.tied_embeddings:
            self.head.weight = self.embed.tokens.weight

    def forward(self, x: Tensor, positions: Tensor, documents: Tensor | None = None) -> Tensor:
        """Logits [tokens, vocab] of token ids [batch, seq].

        A later stage takes hidden states [tokens, hidden] for x; one without the head returns them. `positions` and
        `documents` are [batch, seq] on every stage.
        """
        context = self.context(positions, documents)
        x = self.embed(x, positions)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(
                torch.get_autocast_dtype(x.device.type)
            )  # blocks add to what flows between them: one dtype for all
        for layer in self.layers.values():
            x = layer(x, context)
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def context(self, positions: Tensor, documents: Tensor | None) -> Context:
        """What all blocks need to know of the tokens, computed once."""
        a = self.architecture
        rope = None
        if a.rope is not None:
            # float32 as in transformers, whatever the weights are cast to; float64 where everything is.
            dtype = torch.promote_types(next(self.parameters()).dtype, torch.float32)
            rope = tables(a.rope, a.rope_dim, positions, dtype)
        sequence_of = None
        if a.balance_coefficient and a.model.moe_layers and torch.is_grad_enabled():
            batch, seq = positions.shape
            sequence_of = torch.arange(batch, device=positions.device).repeat_interleave(seq, output_size=batch * seq)
        return Context(positions, documents, rope, sequence_of)


@functools.lru_cache(maxsize=8)
def parameter_shapes(architecture: Architecture) -> Mapping[str, tuple[int, ...]]:
    """The shapes of a whole Decoder's parameters by name; of two tied ones, the one that is kept."""
    whole = Decoder(architecture, "meta", torch.float32)
    return MappingProxyType({name: tuple(parameter.shape) for name, parameter in whole.named_parameters()})


@functools.lru_cache(maxsize=8)
def weight_shapes(architecture: Architecture) -> Mapping[str, tuple[int, ...]]:
    """The same, and then the buffers: all that a checkpoint holds."""
    e, shapes = architecture.model.experts, dict(parameter_shapes(architecture))
    if e is not None and architecture.routing.corrected:
        mixtures = (i for i in range(architecture.model.layers) if architecture.model.is_moe_layer(i))
        shapes |= {f"layers.{i}.moe.router.correction": (e.count,) for i in mixtures}
    return MappingProxyType(shapes)


def make_recipe(a: Architecture) -> Recipe:
    """Where each parallel mode applies in a Decoder of this architecture."""
    m = a.model
    tensor = {
        "embed.tokens": "embedding",
        **({"embed.positions": "positions"} if m.positions == "learned" else {}),
        "layers.*.attention_norm": "sequence",
        **{f"layers.*.attention{part}": style for part, style in _attention(a).items()},
        "layers.*.mlp_norm": "sequence",
        **(_mlp("layers.*.mlp", m.gated_mlp) if m.moe_layers < m.layers else {}),
        **(_moe(a) if m.moe_layers else {}),
        "norm": "sequence",
        "head": "head",
    }
    return Recipe(
        order=("embed", "layers.*", "norm", "head"),
        tensor=tensor,
        tied=(("head.weight", "embed.tokens.weight"),) if m.tied_embeddings else (),
        attention="layers.*.attention",
        core="layers.*.attention",
        experts="layers.*.moe" if m.moe_layers else None,
        buffers=("layers.*.moe.router.correction",) if m.moe_layers and a.routing.corrected else (),
        draws=False,
    )


def _attention(a: Architecture) -> dict[str, str]:
    if a.model.latent is None:
        norms = {".q_norm": "partial", ".k_norm": "partial"} if a.per_head else {}
        return {"": "enter", ".q": "column", ".k": "columns_kv", ".v": "columns_kv", **norms, ".o": "row"}
    narrow = {".q_down": "sequence", ".q_norm": "sequence", ".q_up": "column"}
    query = narrow if a.model.latent.q_lora_rank else {".q": "column"}
    # The latents are narrower than hidden states: they are what is gathered, for each rank's heads.
    keys = {".kv_down": "sequence", ".kv_whole": "enter", ".kv_norm": "partial", ".kv_up": "column"}
    return {".q_whole": "enter", **query, **keys, ".o": "row"}


def _mlp(name: str, gated: bool) -> dict[str, str]:
    gate = {f"{name}.gate": "column"} if gated else {}
    return {name: "enter", **gate, f"{name}.up": "column", f"{name}.down": "row"}


def _moe(a: Architecture) -> dict[str, str]:
    e = a.model.experts
    assert e is not None
    return {
        "layers.*.moe.router": "sequence",
        **(_mlp("layers.*.moe.shared", a.model.gated_mlp) if e.shared_ffn_hidden else {}),
        **({"layers.*.moe.shared_gate": "sequence"} if e.shared_gate else {}),
    }
