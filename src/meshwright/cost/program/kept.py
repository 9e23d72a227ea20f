"""Kept: what a block's forward keeps for its backward (`train/models/block.py`), one micro-batch.

T tokens (n between split products), hidden width H, e bytes a number, local heads a and k of width d, feed-forward F:
input, both norms' outputs and the middle residual 4 e·n·H; queries and the kernel's result 2 e·T·a·d, keys and values
2 e·T·k·d, the log-sum-exp 4·T·a; gate, its activation, up and their product 4 e·T·F. With sequence parallelism what
enters a split product is kept gathered (Korthikanti et al., arXiv:2205.05198 section 4.2.2, gathers it again instead).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshwright.cost.program.kept_latent import latent_kept
from meshwright.cost.program.kept_mixture import mixture_kept
from meshwright.cost.program.kept_norm import keeps_input, norm_output, statistics
from meshwright.cost.program.shape import INDEX, WIDE, Shape


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of one layer."""

    whole: int
    """Without recomputation."""
    core: int
    """Of it, what selective recomputation computes again."""
    entry: int
    """The block's input, which full recomputation keeps alone."""

    def under(self, recompute: str) -> int:
        """With "none", "selective" or "full" recomputation."""
        return {"none": self.whole, "selective": self.whole - self.core, "full": self.entry}[recompute]


def layer_kept(s: Shape, layer: int) -> Kept:
    """Of one layer."""
    mixture = s.model.is_moe_layer(layer)
    inner = mixture_kept(s) if mixture else mlp_kept(s, s.model.ffn_hidden // s.layout.tensor)
    latent = s.model.latent is not None
    attention, core = latent_kept(s) if latent else _attention(s)
    inputs = 2 * s.hidden if keeps_input(s) else 0
    whole = inputs + norm_kept(s, split=not latent) + attention + norm_kept(s, split=not mixture) + inner
    return Kept(whole, core, s.hidden)


def norm_kept(s: Shape, *, split: bool) -> int:
    """Of a norm over hidden states; its output goes into a split product or (`split` false) stays on its rank."""
    return norm_output(s, s.rows, s.tokens if split else s.rows, s.model.hidden)


def _attention(s: Shape) -> tuple[int, int]:
    """Bytes between the norm's output and the residual; of these, of the core alone."""
    m, d = s.model, s.model.head_dim
    queries, keys = s.heads * d, s.kv_heads * d
    each = s.element * s.tokens
    core = WIDE * s.tokens * s.heads
    if s.layout.context > 1 and s.layout.context_kind == "ulysses":
        # Heads are copied until the context ranks divide them; the result is kept before and after it travels back.
        core += each * (queries + 2 * (math.lcm(s.kv_heads, s.layout.context) * d - keys))
    elif s.layout.context == 1:
        core += s.element * s.seq_len**2 if _masked(s) else 0
        core += each * 2 * (queries - keys) if _repeats(s) else 0
    total = each * 2 * (queries + keys) + core
    if m.qk_norm == "head":
        total += _head_norms(s)
    return total + s.copies(2 * m.hidden * queries, 2 * m.hidden * keys), core


def _head_norms(s: Shape) -> int:
    """Inputs and statistics of the norms of queries and keys; what they give is rotated, which keeps nothing."""
    rows, d = s.tokens * (s.heads + s.kv_heads), s.model.head_dim
    return (s.element * rows * d if keeps_input(s) else 0) + statistics(s, rows, d) + s.copies(d)


def _repeats(s: Shape) -> bool:
    """Whether keys and values are repeated: here no kernel of a GPU takes grouped heads (`attention.sdpa`)."""
    return s.gpu and s.heads != s.kv_heads and (_masked(s) or s.element == WIDE)


def _masked(s: Shape) -> bool:
    """Whether a mask [seq, seq] is written out."""
    return 0 < s.model.attention_window < s.seq_len


def mlp_kept(s: Shape, width: int) -> int:
    """Of a feed-forward part of this inner width, without its input."""
    gated = s.model.gated_mlp
    return s.element * s.tokens * width * (4 if gated else 2) + s.copies((3 if gated else 2) * s.model.hidden * width)


def tables_kept(s: Shape) -> int:
    """Cosines and sines of rotary positions, which all layers share."""
    m = s.model.latent
    width = s.model.head_dim if m is None else m.qk_rope_head_dim
    return WIDE * s.tokens * width if s.model.positions == "rotary" else 0


def embedding_kept(s: Shape) -> int:
    """Of a split table: whose rows are looked up, and which ids are elsewhere. A whole one keeps its input alone."""
    return (INDEX + 1) * s.tokens if s.layout.tensor > 1 else 0


def head_kept(s: Shape) -> int:
    """Of the last norm, with its input, and the head; without the logits."""
    entry = s.hidden if keeps_input(s) else 0
    return entry + norm_kept(s, split=True) + s.copies(s.vocabulary * s.model.hidden)


def loss_kept(s: Shape) -> int:
    """Of the cross-entropy: log-probabilities, or a tensor rank's share of probabilities and where its targets are."""
    split = (INDEX + 2) * s.tokens if s.layout.tensor > 1 else 0
    return WIDE * s.tokens * s.vocabulary + split
