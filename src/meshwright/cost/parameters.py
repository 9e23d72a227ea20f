"""Parameters: how many numbers a model learns, part by part.

Counts follow the published implementations (Hugging Face `transformers`): totals equal those of the checkpoints.
Norm weights inside attention (query/key norms, latent norms) are counted with the norms: like them, tensor
parallelism replicates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.spec.errors import WorkloadError
from meshwright.spec.model import Model

Matrix = tuple[int, int, bool]
"""Inputs, outputs, whether there is a bias."""


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """One layer's parameters by part."""

    attention: int
    norms: int
    mlp: int = 0
    """The dense feed-forward part."""
    router: int = 0
    routed_experts: int = 0
    """All routed experts of the layer."""
    shared_experts: int = 0
    """The experts that every token visits, with their gate."""
    idle_experts: int = 0
    """Of `routed_experts`, those that one token does not visit."""

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.attention + self.norms + self.mlp + self.router + self.routed_experts + self.shared_experts

    @property
    def active(self) -> int:
        """Parameters of the layer that one token uses."""
        return self.total - self.idle_experts


@dataclass(frozen=True, slots=True)
class Parameters:
    """A model's parameters by part."""

    embedding: int
    """Token table, token types, embedding norm and projection."""
    position: int
    """Learned position table."""
    dense_layer: LayerParameters | None
    """One layer with a dense feed-forward part; None: there is none."""
    dense_layers: int
    moe_layer: LayerParameters | None
    """One layer with a mixture of experts; None: there is none."""
    moe_layers: int
    final: int
    """The norm after the last layer."""
    head: int
    """What the output head adds: nothing but biases where it shares the embedding table."""

    @property
    def outside(self) -> int:
        """Parameters outside the layers."""
        return self.embedding + self.position + self.final + self.head

    @property
    def total(self) -> int:
        """All parameters; a shared table counts once."""
        dense = self.dense_layer.total * self.dense_layers if self.dense_layer else 0
        moe = self.moe_layer.total * self.moe_layers if self.moe_layer else 0
        return self.outside + dense + moe

    @property
    def active(self) -> int:
        """Parameters that one token uses: all but the routed experts it does not visit.

        Embedding and head count in full, as on the cards of Mixtral, DeepSeek and Qwen (gpt-oss's card leaves the
        input table out).
        """
        idle = self.moe_layer.idle_experts * self.moe_layers if self.moe_layer else 0
        return self.total - idle


def parameters(model: Model) -> Parameters:
    """The parameters of a model, part by part."""
    moe = model.moe_layers
    return Parameters(
        embedding=embedding_parameters(model),
        position=model.position_rows * model.hidden,
        dense_layer=_layer(model, False) if moe == 0 or moe < model.layers else None,
        dense_layers=model.layers - moe,
        moe_layer=_layer(model, True) if moe else None,
        moe_layers=moe,
        final=norm_size(model) if model.final_norm else 0,
        head=head_parameters(model),
    )


def layer_parameters(model: Model, index: int) -> LayerParameters:
    """The parameters of layer `index` (from 0)."""
    return _layer(model, model.is_moe_layer(index))


def _layer(model: Model, moe: bool) -> LayerParameters:
    attention, norms = attention_parameters(model), norm_parameters(model)
    e = model.experts
    if not moe or e is None:
        return LayerParameters(attention, norms, mlp=dense_mlp_parameters(model))
    expert = expert_parameters(model)
    return LayerParameters(
        attention,
        norms,
        router=router_parameters(model),
        routed_experts=e.count * expert,
        shared_experts=shared_expert_parameters(model),
        idle_experts=(e.count - e.per_token) * expert,
    )


def attention_parameters(model: Model) -> int:
    """Projections of one layer's attention with their biases, and attention sinks; no norms."""
    sinks = model.heads if model.attention_sinks else 0
    return sum(_matrix(*shape) for shape in attention_matrices(model).values()) + sinks


def attention_matrices(model: Model) -> dict[str, Matrix]:
    """Attention's projections by name: inputs, outputs, bias.

    Plain attention has q, k, v and o. Latent attention (arXiv:2405.04434, section 2.1) has q (or q_down and q_up),
    kv_down (the latent and the shared rotary key), kv_up and o.
    """
    h, bias = model.hidden, model.qkv_bias
    m = model.latent
    if m is None:
        q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
        o = (q, h, model.attention_out_bias)
        return {"q": (h, q, bias), "k": (h, kv, bias), "v": (h, kv, bias), "o": o}
    q = model.heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    up = model.heads * (m.qk_nope_head_dim + m.v_head_dim)
    rank = m.q_lora_rank
    query = {"q_down": (h, rank, bias), "q_up": (rank, q, False)} if rank else {"q": (h, q, False)}
    return {
        **query,
        "kv_down": (h, m.kv_lora_rank + m.qk_rope_head_dim, bias),
        "kv_up": (m.kv_lora_rank, up, False),
        "o": (model.heads * m.v_head_dim, h, model.attention_out_bias),
    }


def dense_mlp_parameters(model: Model) -> int:
    """One dense feed-forward part, with biases."""
    return _mlp(model, model.ffn_hidden, model.mlp_bias)


def expert_parameters(model: Model) -> int:
    """One routed expert; 0 where the model has none."""
    e = model.experts
    return _mlp(model, e.ffn_hidden, e.expert_bias) if e else 0


def shared_expert_parameters(model: Model) -> int:
    """The experts that every token visits in one layer, with their gate; 0 where the model has none."""
    e = model.experts
    if e is None or not e.shared_ffn_hidden:
        return 0
    return _mlp(model, e.shared_ffn_hidden, e.expert_bias) + (model.hidden if e.shared_gate else 0)


def router_parameters(model: Model) -> int:
    """One layer's router; 0 where the model has none."""
    e = model.experts
    return _matrix(model.hidden, e.count, e.router_bias) if e else 0


def norm_parameters(model: Model) -> int:
    """One layer's norms: those of the blocks, and those of queries, keys and latents."""
    m, terms = model.latent, norm_size(model) // model.hidden
    inner = {
        "none": 0,
        "head": 2 * model.head_dim * terms,
        "full": (model.heads + model.kv_heads) * model.head_dim * terms,
    }[model.qk_norm]
    latent = m.q_lora_rank + m.kv_lora_rank if m else 0
    return model.norms_per_layer * norm_size(model) + inner + latent


def norm_size(model: Model) -> int:
    """One norm over the hidden width: a weight, and for `layernorm` a bias."""
    return model.hidden * (2 if model.norm == "layernorm" else 1)


def embedding_parameters(model: Model) -> int:
    """Token table (with its projection to hidden where it is narrower), token types, embedding norm."""
    width = model.embedding_dim or model.hidden
    projection = width * model.hidden if model.embedding_dim else 0
    norm = norm_size(model) if model.embedding_norm else 0
    return model.vocab * width + projection + model.token_types * model.hidden + norm


def head_parameters(model: Model) -> int:
    """What the output head adds to the embedding: its table where untied, projection, biases, BERT's dense layers."""
    h = model.hidden
    width = model.embedding_dim or h
    table = 0 if model.tied_embeddings else model.vocab * width
    projection = width * h if model.embedding_dim else 0
    bias = model.vocab if model.head_bias else 0
    pooler = _matrix(h, h, True) if model.pooler else 0
    mlm = _matrix(h, h, True) + norm_size(model) if model.mlm_head else 0
    sentence = _matrix(h, 2, True) if model.sentence_head else 0
    return table + projection + bias + pooler + mlm + sentence


def mlp_matrices(model: Model, width: int, bias: bool) -> dict[str, Matrix]:
    """The matrices of a feed-forward part of this width by name: up and down, and gate where it is gated."""
    up = (model.hidden, width, bias)
    gate = {"gate": up} if model.gated_mlp else {}
    return {**gate, "up": up, "down": (width, model.hidden, bias)}


def matmul_parameters(model: Model) -> int:
    """Entries of the matrices that one token is multiplied by: the N of 6N FLOPs a token.

    Left out: biases, norms, tables that are looked up, and experts not visited. The head counts, tied or not, as in
    Megatron's formula (arXiv:2104.04473 equation 3), and so do router, shared experts' gate and embedding projection.
    """
    h = model.hidden
    attention = sum(rows * columns for rows, columns, _ in attention_matrices(model).values())
    dense = _entries(model, model.ffn_hidden)
    moe, e = 0, model.experts
    if e is not None:
        moe = e.per_token * _entries(model, e.ffn_hidden) + _entries(model, e.shared_ffn_hidden) + h * e.count
        moe += h if e.shared_gate else 0
    width = model.embedding_dim or h
    head = model.vocab * width + (2 * width * h if model.embedding_dim else 0) + (h * h if model.mlm_head else 0)
    mixtures = model.moe_layers
    return model.layers * attention + (model.layers - mixtures) * dense + mixtures * moe + head


def lora_parameters(model: Model, rank: int, targets: Sequence[str]) -> int:
    """Adapters of this rank on the named projections: rank × (inputs + outputs) each (arXiv:2106.09685 section 4.1).

    q, k, v, o, gate, up and down name projections as in a Llama, fused ones apart. In latent attention q means both
    query projections, k or v both key-value ones. Every routed expert has adapters of its own. Raises WorkloadError
    for a projection that the model does not have.
    """
    wanted = _adapted(model, targets)
    dense = _adapters(mlp_matrices(model, model.ffn_hidden, False), rank, wanted)
    moe, e = 0, model.experts
    if e is not None:
        moe = e.count * _adapters(mlp_matrices(model, e.ffn_hidden, False), rank, wanted)
        shared = mlp_matrices(model, e.shared_ffn_hidden, False)
        moe += _adapters(shared, rank, wanted) if e.shared_ffn_hidden else 0
    mixtures = model.moe_layers
    attention = _adapters(attention_matrices(model), rank, wanted)
    return model.layers * attention + (model.layers - mixtures) * dense + mixtures * moe


def routed_lora_parameters(model: Model, rank: int, targets: Sequence[str]) -> int:
    """Of `lora_parameters`, the adapters of routed experts."""
    e = model.experts
    if e is None:
        return 0
    each = _adapters(mlp_matrices(model, e.ffn_hidden, False), rank, _adapted(model, targets))
    return model.moe_layers * e.count * each


def _adapted(model: Model, targets: Sequence[str]) -> set[str]:
    """Names of the matrices that these targets mean."""
    latent = {"q": ("q_down", "q_up", "q"), "k": ("kv_down", "kv_up"), "v": ("kv_down", "kv_up"), "o": ("o",)}
    legal = ("q", "k", "v", "o", *mlp_matrices(model, 1, False))
    for target in targets:
        if target not in legal:
            raise WorkloadError(f"{model.name} has no projection {target!r} for an adapter.", legal=legal)
    return {name for t in targets for name in (latent.get(t, (t,)) if model.latent else (t,))}


def _adapters(matrices: dict[str, Matrix], rank: int, wanted: set[str]) -> int:
    return rank * sum(rows + columns for name, (rows, columns, _) in matrices.items() if name in wanted)


def _entries(model: Model, width: int) -> int:
    return sum(rows * columns for rows, columns, _ in mlp_matrices(model, width, False).values())


def _mlp(model: Model, width: int, bias: bool) -> int:
    return sum(_matrix(*shape) for shape in mlp_matrices(model, width, bias).values())


def _matrix(inputs: int, outputs: int, bias: bool) -> int:
    return inputs * outputs + (outputs if bias else 0)
