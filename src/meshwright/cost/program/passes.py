"""Passes: bytes that are alive for a moment inside a forward or a backward of one stage, beside what is kept."""

from __future__ import annotations

from meshwright.cost.program.shape import WIDE, Shape
from meshwright.cost.program.weights import Weights


def logits_held(s: Shape) -> int:
    """The head's output, which a pipeline's last stage holds until its backward."""
    return s.element * s.tokens * s.vocabulary if s.layout.stages > 1 else 0


def loss_forward(s: Shape) -> int:
    """Beside log-probabilities: logits, and their copy in fp32 where one process has the whole vocabulary."""
    logits = s.tokens * s.vocabulary
    own = 0 if s.layout.stages > 1 else s.element * logits
    copied = WIDE * logits if s.element < WIDE and s.layout.tensor == 1 else 0
    return own + copied


def loss_backward(s: Shape) -> int:
    """Beside log-probabilities: two gradients in fp32, of the log-probabilities and of the logits; split, a narrow one.

    A split loss turns its probabilities into the gradient in place.
    """
    logits = s.tokens * s.vocabulary
    if s.layout.tensor > 1:
        return s.element * logits if s.element < WIDE else 0
    return 2 * WIDE * logits


def head_backward(s: Shape, w: Weights) -> int:
    """The matrix's gradient, with the logits' gradient or, under autocast, afterwards with its own copy in fp32."""
    copied = WIDE * w.head if s.casts else 0
    return s.element * w.head + max(s.element * s.tokens * s.vocabulary, copied) + s.entered


def table_backward(s: Shape, w: Weights, *, tied: bool) -> int:
    """The embedding table's gradient, and under FSDP2 the head's, which waits for it; tied, also their sum."""
    if not w.table:
        return 0
    narrow = s.element if s.layout.zero_stage else WIDE
    waiting = (2 if tied else 1) * s.element * w.head if s.layout.zero_stage else 0
    return narrow * w.table + waiting


def root_reduced(s: Shape, w: Weights) -> int:
    """FSDP2: gradients of the root and the buffer in which they travel."""
    return (s.element + WIDE) * w.root if s.layout.zero_stage else 0


def split_waits(s: Shape, width: int) -> int:
    """Gradients of a layer's products, kept from the gradient of its input to those of its weights (ZB schedules)."""
    heads = (s.heads + 2 * s.kv_heads) * s.model.head_dim
    inner = (2 if s.model.gated_mlp else 1) * width
    return s.element * s.tokens * (heads + inner) + 2 * (s.entered + s.hidden)


def block_backward(s: Shape, width: int) -> int:
    """Gradients that flow through a feed-forward part of this inner width, and of hidden states around it."""
    return 3 * s.element * s.tokens * width + 2 * s.hidden + (s.entered if s.sequence else 0)


def attention_backward(s: Shape) -> int:
    """Gradients of queries, keys and values; over split sequences they are added up in fp32, with others' keys there.

    A ring holds two blocks of keys and values and three of their gradients; gathered, keys and values are there whole,
    as they came and in order, and so are their gradients.
    """
    layout, m = s.layout, s.model
    queries = s.tokens * s.heads * m.head_dim
    keys = s.tokens * s.kv_heads * 2 * m.head_dim
    around = 2 * s.hidden + s.element * queries
    if layout.context == 1 or layout.context_kind == "ulysses":
        return around + s.element * (queries + keys)
    if layout.context_kind == "ring":
        return around + WIDE * queries + keys * (2 * s.element + 3 * WIDE)
    return around + WIDE * queries + layout.context * keys * (2 * s.element + 2 * WIDE)
