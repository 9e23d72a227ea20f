"""Model: the architecture's numbers. No weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture-of-experts feed-forward part."""

    count: int
    """Routed experts a layer."""
    per_token: int
    """Experts that a token visits (top-k)."""
    ffn_hidden: int
    """Width of one routed expert."""
    shared_ffn_hidden: int = 0
    """Summed width of the experts that every token visits."""
    shared_gate: bool = False
    """The shared expert's output is scaled by a learned sigmoid gate (Qwen2-MoE)."""
    first_dense_layers: int = 0
    """Leading layers that keep the dense feed-forward part."""
    layer_every: int = 1
    """After the first dense layers, every n-th layer is a mixture."""
    dense_layers: frozenset[int] = frozenset()
    """Further layers (from 0) that keep the dense feed-forward part."""
    router_bias: bool = False
    """The router has a bias, one number an expert (gpt-oss; DeepSeek-V3's is set without gradients)."""
    expert_bias: bool = False
    """The experts' projections have biases (gpt-oss)."""


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 section 2.1)."""

    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int = 0
    """0: the query is projected directly."""


@dataclass(frozen=True, slots=True)
class Model:
    """The numbers of one transformer, as far as cost depends on them."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    """Width of the dense feed-forward part."""
    vocab: int
    max_positions: int = 2048
    family: str = "llama"
    gated_mlp: bool = True
    """Three feed-forward matrices (SwiGLU, GeGLU) and not two."""
    parallel_block: bool = False
    """Attention and feed-forward read the same normalised input (Phi, NeoX)."""
    norm: str = "rmsnorm"
    """rmsnorm, layernorm, or layernorm-nobias."""
    norms_per_layer: int = 2
    qk_norm: str = "none"
    """none, head (one weight of head_dim, Qwen3) or full (one weight of the whole projection)."""
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    attention_sinks: bool = False
    """One learned logit a head (gpt-oss)."""
    positions: str = "rotary"
    """rotary, learned or alibi."""
    position_rows: int = 0
    """Rows of the learned position table."""
    token_types: int = 0
    embedding_norm: bool = False
    embedding_dim: int = 0
    """Width of the embedding table where it differs from hidden (OPT-350m); 0: hidden."""
    final_norm: bool = True
    pooler: bool = False
    mlm_head: bool = False
    """BERT's masked-language head: a dense layer and a norm before the tied decoder."""
    sentence_head: bool = False
    """BERT's next-sentence head: two logits from the pooler."""
    tied_embeddings: bool = False
    causal: bool = True
    attention_window: int = 0
    """Tokens that a sliding-window layer sees; 0: all."""
    window_every: int = 1
    """Of every n layers, n-1 are windowed when n > 1; all of them when n = 1."""
    experts: Experts | None = None
    latent: LatentAttention | None = None
    warnings: tuple[str, ...] = ()
    """What the reader of the configuration had to assume."""
    source: str = ""
    """Where the figures come from (a preset's `_source`)."""

    @property
    def moe_layers(self) -> int:
        """Number of layers whose feed-forward part is a mixture of experts."""
        if self.experts is None:
            return 0
        return sum(self.is_moe_layer(i) for i in range(self.layers))

    def is_moe_layer(self, index: int) -> bool:
        """Whether layer `index` (from 0) is a mixture of experts."""
        e = self.experts
        if e is None or index < e.first_dense_layers or index in e.dense_layers:
            return False
        return (index - e.first_dense_layers + 1) % e.layer_every == 0
