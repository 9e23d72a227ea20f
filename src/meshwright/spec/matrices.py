"""The weight matrices of a model by shape: optimizers that factor or orthogonalise keep states by shape, not by number.

Vectors (norms, biases), below a thousandth of a transformer's parameters, are not listed.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.spec.model import Model


@dataclass(frozen=True, slots=True)
class Matrix:
    """`count` matrices of one shape."""

    rows: int
    columns: int
    count: int = 1
    table: bool = False
    """An embedding, position table or output head, and not a hidden layer's weight."""

    @property
    def size(self) -> int:
        """Parameters in all of them."""
        return self.rows * self.columns * self.count


def weight_matrices(model: Model) -> tuple[Matrix, ...]:
    """Every weight matrix of the model, alike ones together; a shared table is listed once."""
    attention = tuple(Matrix(m.rows, m.columns, m.count * model.layers) for m in _attention(model))
    matrices = (*_tables(model), *attention, *_feed_forward(model))
    return tuple(m for m in matrices if m.size)


def _tables(model: Model) -> tuple[Matrix, ...]:
    width = model.embedding_dim or model.hidden
    projections = 2 if model.embedding_dim not in (0, model.hidden) else 0
    extra = int(model.pooler) + int(model.mlm_head)
    return (
        Matrix(model.vocab, width, 1 if model.tied_embeddings else 2, table=True),
        Matrix(model.position_rows, model.hidden, table=True),
        Matrix(model.token_types, model.hidden, table=True),
        Matrix(width, model.hidden, projections),
        Matrix(model.hidden, model.hidden, extra),
    )


def _attention(model: Model) -> tuple[Matrix, ...]:
    """One layer's attention projections."""
    h, latent = model.hidden, model.latent
    if latent is None:
        q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
        return (Matrix(h, q), Matrix(h, kv, 2), Matrix(q, h))
    q = model.heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
    query = (Matrix(h, latent.q_lora_rank), Matrix(latent.q_lora_rank, q)) if latent.q_lora_rank else (Matrix(h, q),)
    return (
        *query,
        Matrix(h, latent.kv_lora_rank + latent.qk_rope_head_dim),
        Matrix(latent.kv_lora_rank, model.heads * (latent.qk_nope_head_dim + latent.v_head_dim)),
        Matrix(model.heads * latent.v_head_dim, h),
    )


def _feed_forward(model: Model) -> tuple[Matrix, ...]:
    """All layers' feed-forward weights; input and output projections have the same rows and columns, turned."""
    each = 3 if model.gated_mlp else 2
    moe, e = model.moe_layers, model.experts
    dense = Matrix(model.hidden, model.ffn_hidden, each * (model.layers - moe))
    if e is None:
        return (dense,)
    return (
        dense,
        Matrix(model.hidden, e.ffn_hidden, each * e.count * moe),
        Matrix(model.hidden, e.shared_ffn_hidden, each * moe),
        Matrix(e.count, model.hidden, moe),
    )
