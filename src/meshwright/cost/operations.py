"""Operations: a block as a list of kernels with FLOPs, bytes moved and bytes kept for backward.

All quantities are of one micro-batch on one device. Every value is a number or a column.
Shapes: T tokens a device (micro-batch x sequence / context), n = T / tensor with sequence parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

MATMUL, ATTENTION, ELEMENTWISE, SCORES = "matmul", "attention", "elementwise", "scores"
VOCABULARY_MULTIPLE = 128
"""Rows that a tensor rank's part of the vocabulary is padded to (Megatron-LM's default)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel (or a fused few) of the forward pass and what its backward costs."""

    name: str
    kind: str
    flops: Number = 0.0
    """Forward FLOPs."""
    bytes: Number = 0.0
    """Forward memory traffic."""
    shape: tuple[Number, Number, Number] | None = None
    """m, n and k of a matrix product; a batch of products has the shape of one."""
    saved: Number = 0.0
    """Bytes kept for backward when nothing is recomputed."""
    input_gradient: float = 1.0
    """FLOPs of the input gradient, relative to the forward pass."""
    weight_gradient: float = 0.0
    """FLOPs of the weight gradient, relative to the forward pass."""
    backward_bytes: float = 1.5
    """Memory traffic of backward, relative to the forward pass."""
    dropped: bool = False
    """Selective recomputation does not keep `saved`: what is big for its cost (scores, else norms' outputs)."""
    replayed: bool = False
    """Selective recomputation runs the operation again in backward."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Token counts and element width that the operations of a block share."""

    tokens: Number
    """T: tokens that a tensor-parallel product sees on one device."""
    norm_tokens: Number
    """n: tokens that a norm sees on one device."""
    tensor: Number
    element: float
    """Bytes of one activation element."""


def sizes(workload: Workload, layout: LayoutColumns) -> Sizes:
    """The token counts of one micro-batch on one device."""
    tokens = layout.micro_batch * workload.seq_len / layout.context
    split = np.where(np.asarray(layout.sequence_parallel) > 0, layout.tensor, 1)
    return Sizes(tokens, tokens / split, layout.tensor, 4.0 if workload.precision in ("fp32", "tf32") else 2.0)


def visible_keys(model: Model, workload: Workload) -> float:
    """Keys that an average query attends to; s/2 for a causal model, less with a sliding window."""
    seq = float(workload.seq_len)
    full = seq / 2 if workload.causal else seq
    window = float(model.attention_window)
    if not 0 < window < seq:
        return full
    windowed = window - window * window / (2 * seq) if workload.causal else min(seq, 2 * window)
    share = (model.window_every - 1) / model.window_every if model.window_every > 1 else 1.0
    return share * windowed + (1 - share) * full


def _norm(name: str, width: int, z: Sizes, tokens: Number, replayed: bool = False) -> Operation:
    moved = z.element * tokens * width
    return Operation(name, ELEMENTWISE, bytes=2 * moved, saved=moved, replayed=replayed)


def _matmul(name: str, tokens: Number, inner: float, outer: Number, z: Sizes, **more: Any) -> Operation:
    """[tokens, inner] x [inner, outer]; `outer` or `inner` is already divided by the tensor degree."""
    moved = z.element * (tokens * inner + tokens * outer + inner * outer)
    return Operation(
        name,
        MATMUL,
        flops=2 * tokens * inner * outer,
        bytes=moved,
        shape=(tokens, outer, inner),
        weight_gradient=1.0,
        backward_bytes=2.0,
        **more,
    )


def attention_block(model: Model, workload: Workload, z: Sizes) -> list[Operation]:
    """Norm, projections, scores and residual of one layer."""
    e, h, t = z.element, model.hidden, z.tensor
    drop = workload.fused_attention  # then the norms' outputs are what selective recomputation saves
    ops = [_norm("attention norm", h, z, z.norm_tokens, drop)]
    ops += _latent_projections(model, z) if model.latent else _projections(model, z, drop)
    ops += _core(model, workload, z)
    value_dim = model.latent.v_head_dim if model.latent else model.head_dim
    width = model.heads * value_dim / t
    ops.append(_matmul("attention output", z.tokens, width, h, z, saved=e * z.tokens * width))
    ops.append(_residual("attention residual", model, workload, z))
    if model.norms_per_layer > 2:
        ops.append(_norm("attention output norm", h, z, z.norm_tokens))
    return ops


def _projections(model: Model, z: Sizes, drop: bool) -> list[Operation]:
    e, h, t = z.element, model.hidden, z.tensor
    key_heads = np.maximum(model.kv_heads / t, 1.0)  # replicated when there are fewer than tensor ranks
    width = model.heads * model.head_dim / t + 2 * key_heads * model.head_dim
    ops = [_matmul("qkv", z.tokens, h, width, z, saved=e * z.norm_tokens * h, dropped=drop)]
    if model.positions == "rotary":
        ops.append(Operation("rotary", ELEMENTWISE, bytes=2 * e * z.tokens * width * 0.8, backward_bytes=1.0))
    if model.qk_norm != "none":
        ops.append(_norm("qk norm", 1, z, z.tokens * width * 0.8))
    return ops


def _latent_projections(model: Model, z: Sizes) -> list[Operation]:
    """Low-rank query and key-value projections (arXiv:2405.04434 equations 9 to 19)."""
    latent = model.latent
    assert latent is not None
    e, h, t, tokens = z.element, model.hidden, z.tensor, z.tokens
    query = model.heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim) / t
    value = model.heads * (latent.qk_nope_head_dim + latent.v_head_dim) / t
    down = latent.kv_lora_rank + latent.qk_rope_head_dim
    ops = []
    if latent.q_lora_rank:
        ops.append(_matmul("query down", z.norm_tokens, h, latent.q_lora_rank, z, saved=e * z.norm_tokens * h))
        ops.append(_norm("query norm", latent.q_lora_rank, z, z.norm_tokens))
        ops.append(
            _matmul("query up", tokens, latent.q_lora_rank, query, z, saved=e * z.norm_tokens * latent.q_lora_rank)
        )
    else:
        ops.append(_matmul("query", tokens, h, query, z, saved=e * z.norm_tokens * h))
    ops.append(_matmul("key-value down", z.norm_tokens, h, down, z))
    ops.append(_norm("key-value norm", latent.kv_lora_rank, z, z.norm_tokens))
    ops.append(_matmul("key-value up", tokens, latent.kv_lora_rank, value, z, saved=e * z.norm_tokens * down))
    ops.append(Operation("rotary", ELEMENTWISE, bytes=2 * e * tokens * (query + value), backward_bytes=1.0))
    return ops


def _core(model: Model, workload: Workload, z: Sizes) -> list[Operation]:
    """Scores, softmax and weighted sum; fused (FlashAttention, arXiv:2205.14135) or through memory."""
    e, t, tokens = z.element, z.tensor, z.tokens
    heads = model.heads / t
    latent = model.latent
    key_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim if latent else model.head_dim
    value_dim = latent.v_head_dim if latent else model.head_dim
    key_heads = heads if latent else np.maximum(model.kv_heads / t, 1.0)
    inputs = e * tokens * (heads * key_dim + key_heads * (key_dim + value_dim))
    output = e * tokens * heads * value_dim
    if workload.fused_attention:
        flops = 2 * tokens * visible_keys(model, workload) * heads * (key_dim + value_dim)
        statistics = 4 * tokens * heads
        return [
            Operation(
                "attention",
                ATTENTION,
                flops=flops,
                bytes=inputs + output,
                saved=inputs + statistics,
                input_gradient=2.5,  # five products against two: the scores are computed again
            )
        ]
    scores = tokens * workload.seq_len * heads
    dropout = 1.0 if workload.dropout else 0.0
    return [
        Operation(
            "query-key",
            MATMUL,
            flops=2 * scores * key_dim,
            bytes=inputs + e * scores,
            shape=(workload.seq_len, workload.seq_len, key_dim),
            saved=inputs,
            input_gradient=2.0,
            replayed=True,
        ),
        Operation(
            "softmax",
            SCORES,
            bytes=2 * e * scores + dropout * (2 * e + 1) * scores,
            saved=e * scores + dropout * (e + 1) * scores,
            dropped=True,
            replayed=True,
        ),
        Operation(
            "weighted sum",
            MATMUL,
            flops=2 * scores * value_dim,
            bytes=e * scores + output,
            shape=(workload.seq_len, value_dim, workload.seq_len),
            input_gradient=2.0,
            replayed=True,
        ),
    ]


def _residual(name: str, model: Model, workload: Workload, z: Sizes) -> Operation:
    """Bias, dropout and residual addition; a dropout mask is one byte an element."""
    elements = z.norm_tokens * model.hidden
    mask = elements if workload.dropout else 0.0 * elements
    return Operation(name, ELEMENTWISE, bytes=3 * z.element * elements + mask, saved=mask)


def mlp_block(model: Model, workload: Workload, z: Sizes) -> list[Operation]:
    """Norm, dense feed-forward and residual of one layer."""
    e, h = z.element, model.hidden
    drop = workload.fused_attention
    ops = [_norm("mlp norm", h, z, z.norm_tokens, drop)] if not model.parallel_block else []
    ops += dense_mlp(model, model.ffn_hidden / z.tensor, z.tokens, e * z.norm_tokens * h, z, drop)
    ops.append(_residual("mlp residual", model, workload, z))
    if model.norms_per_layer > 2:
        ops.append(_norm("mlp output norm", h, z, z.norm_tokens))
    return ops


def dense_mlp(
    model: Model, width: Number, tokens: Number, saved_input: Number, z: Sizes, drop: bool, prefix: str = ""
) -> list[Operation]:
    """Up (and gate), activation and down projections; `width` is one device's share."""
    e, h = z.element, model.hidden
    gates = 2 if model.gated_mlp else 1
    inner = tokens * width
    return [
        _matmul(prefix + "up", tokens, h, gates * width, z, saved=saved_input, dropped=drop),
        Operation(
            prefix + "activation",
            ELEMENTWISE,
            bytes=e * inner * (gates + 1),
            saved=gates * e * inner,
            replayed=drop,
        ),
        _matmul(prefix + "down", tokens, width, h, z, saved=e * inner, dropped=drop),
    ]


def moe_block(model: Model, workload: Workload, layout: LayoutColumns, z: Sizes) -> list[Operation]:
    """Norm, router, dispatched experts, shared expert and residual of one mixture layer.

    Routing is balanced: every device computes T x top-k / tensor token-expert pairs.
    """
    experts = model.experts
    assert experts is not None
    e, h = z.element, model.hidden
    pairs = z.tokens * experts.per_token / z.tensor
    local = experts.count / layout.expert
    expert_tensor = np.where(np.asarray(layout.expert) > 1, 1, z.tensor)
    width = experts.ffn_hidden / expert_tensor
    tokens = pairs * expert_tensor
    gates = 2 if model.gated_mlp else 1
    weights = e * local * (gates + 1) * h * width
    drop = workload.fused_attention
    ops = [
        _norm("mlp norm", h, z, z.norm_tokens, drop),
        _matmul("router", z.norm_tokens, h, experts.count, z, saved=(e * h + 8 * experts.count) * z.norm_tokens),
        Operation("dispatch", ELEMENTWISE, bytes=4 * e * pairs * h, saved=e * pairs * h),
        Operation(
            "experts up",
            MATMUL,
            flops=2 * tokens * h * gates * width,
            bytes=e * tokens * (h + gates * width) + weights * gates / (gates + 1),
            shape=(tokens / local, gates * width, h),
            saved=e * tokens * h,
            weight_gradient=1.0,
            backward_bytes=2.0,
        ),
        Operation(
            "experts activation",
            ELEMENTWISE,
            bytes=e * tokens * width * (gates + 1),
            saved=gates * e * tokens * width,
            replayed=drop,
        ),
        Operation(
            "experts down",
            MATMUL,
            flops=2 * tokens * h * width,
            bytes=e * tokens * (h + width) + weights / (gates + 1),
            shape=(tokens / local, h, width),
            saved=e * tokens * width,
            weight_gradient=1.0,
            backward_bytes=2.0,
            dropped=drop,
        ),
    ]
    if experts.shared_ffn_hidden:
        ops += dense_mlp(model, experts.shared_ffn_hidden / z.tensor, z.tokens, 0.0, z, drop, "shared ")
    if experts.shared_gate:
        ops.append(_matmul("shared gate", z.norm_tokens, h, 1, z, saved=0.0))
    ops.append(_residual("mlp residual", model, workload, z))
    return ops


def embedding_block(model: Model, workload: Workload, z: Sizes) -> list[Operation]:
    """Row look-up on the first stage, and its dropout mask."""
    elements = z.norm_tokens * model.hidden
    mask = elements if workload.dropout else 0.0 * elements
    return [Operation("embedding", ELEMENTWISE, bytes=2 * z.element * z.tokens * model.hidden, saved=mask)]


def head_block(model: Model, workload: Workload, z: Sizes) -> list[Operation]:
    """Final norm, projection to the vocabulary and cross-entropy on the last stage; logits in fp32."""
    e, h = z.element, model.hidden
    vocabulary = np.ceil(model.vocab / (VOCABULARY_MULTIPLE * z.tensor)) * VOCABULARY_MULTIPLE
    logits = z.tokens * vocabulary
    ops = [_norm("final norm", h, z, z.norm_tokens)] if model.final_norm else []
    if model.mlm_head:
        ops.append(_matmul("head transform", z.tokens, h, h, z, saved=e * z.norm_tokens * h))
    ops.append(_matmul("head", z.tokens, h, vocabulary, z, saved=e * z.norm_tokens * h))
    ops.append(Operation("cross-entropy", ELEMENTWISE, bytes=(e + 12.0) * logits, saved=4.0 * logits))
    return ops
