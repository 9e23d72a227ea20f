"""What latent attention keeps for backward (`train/models/latent_attention.py`; arXiv:2405.04434 section 2.1).

T tokens (n on a rank between split products), a local heads, key width d = plain + turning, value width w, latents of
rank r_q and r_kv: the latents and their norms; of all heads queries and keys 2 e·T·a·d, what the keys' and values'
projection gives e·T·a·(plain + w), the result e·T·a·w.
"""

from __future__ import annotations

from meshwright.cost.program.kept_norm import norm_output
from meshwright.cost.program.shape import WIDE, Shape


def latent_kept(s: Shape) -> tuple[int, int]:
    """Bytes between the norm's output and the residual; of these, of the core alone."""
    m = s.model.latent
    assert m is not None
    latents = s.element * s.tokens * (m.kv_lora_rank + m.qk_rope_head_dim)
    latents += norm_output(s, s.tokens, s.tokens, m.kv_lora_rank)
    if m.q_lora_rank:
        latents += s.element * s.rows * m.q_lora_rank + norm_output(s, s.rows, s.tokens, m.q_lora_rank)
    elif s.sequence:
        latents += s.entered
    around, whole = _heads(s)
    core = whole - around + WIDE * s.tokens * s.heads
    return latents + around + core + s.copies(*_weights(s)), core


def _heads(s: Shape) -> tuple[int, int]:
    """Bytes of heads around the core, and with it; of these the log-sum-exp is not one.

    Ulysses keeps what it has traded, and the result before and after it travels back. The kernel of a CPU wants values
    as wide as keys, and gives such.
    """
    m = s.model.latent
    assert m is not None
    key, value = m.qk_nope_head_dim + m.qk_rope_head_dim, m.v_head_dim
    around = whole = 2 * key + m.qk_nope_head_dim + 2 * value
    if s.layout.context > 1:
        whole = 2 * key + 3 * value if s.layout.context_kind == "ulysses" else around
    elif not s.gpu and value < key:
        whole = 4 * key + value
    each = s.element * s.tokens * s.heads
    return each * around, each * whole


def _weights(s: Shape) -> tuple[int, ...]:
    m, h = s.model.latent, s.model.hidden
    assert m is not None
    queries = s.heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    to_queries = (h * m.q_lora_rank, m.q_lora_rank * queries) if m.q_lora_rank else (h * queries,)
    values = s.heads * m.v_head_dim
    return (
        *to_queries,
        h * (m.kv_lora_rank + m.qk_rope_head_dim),
        m.kv_lora_rank * (s.heads * m.qk_nope_head_dim + values),
        values * h,
    )
