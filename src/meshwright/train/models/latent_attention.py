"""Latent attention: keys and values made from one narrow vector a token (MLA, arXiv:2405.04434 section 2.1).

With h a token's hidden state: c_q = norm(W_q_down h), q = W_q_up c_q (or q = W_q h); (c_kv, r) = W_kv_down h,
(k, v) = W_kv_up norm(c_kv) head by head. Of a head's query the last numbers turn with the position, and behind every
head's key stands r, which turns too and is the same for all heads. Values are narrower than queries and keys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meshwright.train.models.architecture import Architecture
from meshwright.train.models.attention import Context, Kernel, sdpa
from meshwright.train.models.norms import RmsNorm
from meshwright.train.models.positions import parted, rotate
from meshwright.train.models.unset import Linear

EPS = 1e-6
"""Of the latents' norms, whatever the configuration says of the others (DeepSeek's own code, and transformers)."""


class Whole(nn.Module):
    """Hands its input on. What follows needs it of all tokens: where tensor parallelism gathers them."""

    def forward(self, x: Tensor) -> Tensor:
        """As it came."""
        return x


class LatentAttention(nn.Module):
    """x is [tokens, hidden]; head counts are read from the weights at run time.

    The projections down act on each token alone, those up begin heads: between them lie the narrowest tensors, which
    is where `q_whole` and `kv_whole` stand.
    """

    def __init__(self, a: Architecture, layer: int, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        m, sizes = a.model, a.model.latent
        assert sizes is not None
        assert a.rope is not None
        self.plain_dim, self.rope_dim, self.value_dim = (
            sizes.qk_nope_head_dim, sizes.qk_rope_head_dim, sizes.v_head_dim,
        )  # fmt: skip
        self.query_dim = self.plain_dim + self.rope_dim
        self.kv_rank = sizes.kv_lora_rank
        self.scale = float(self.query_dim**-0.5 * a.rope.score_factor)
        self.neighbours = a.rope.neighbours
        self.causal = m.causal
        self.window = a.windows[layer]
        self.kernel: Kernel = sdpa
        rank, heads = sizes.q_lora_rank, m.heads
        if rank:
            self.q_down = Linear(m.hidden, rank, m.qkv_bias, device, dtype)
            self.q_norm = RmsNorm(rank, eps=EPS, device=device, dtype=dtype)
            self.q_up = _to_heads(rank, heads, self.query_dim, device, dtype)
        else:
            self.q = _to_heads(m.hidden, heads, self.query_dim, device, dtype)
        self.q_whole = Whole()
        self.kv_down = Linear(m.hidden, self.kv_rank + self.rope_dim, m.qkv_bias, device, dtype)
        self.kv_whole = Whole()
        self.kv_norm = RmsNorm(self.kv_rank, eps=EPS, device=device, dtype=dtype)
        self.kv_up = _to_heads(self.kv_rank, heads, self.plain_dim + self.value_dim, device, dtype)
        self.o = Linear(heads * self.value_dim, m.hidden, m.attention_out_bias, device, dtype)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """[tokens, hidden] → [tokens, hidden]; the tokens of `context.positions`, row by row."""
        batch, seq = context.positions.shape
        q = self._queries(x).view(batch, seq, -1, self.query_dim)
        q_plain, q_turning = torch.split(q, [self.plain_dim, self.rope_dim], dim=-1)
        kv, k_turning = torch.split(self.kv_whole(self.kv_down(x)), [self.kv_rank, self.rope_dim], dim=-1)
        kv = self.kv_up(self.kv_norm(kv)).view(batch, seq, -1, self.plain_dim + self.value_dim)
        k_plain, v = torch.split(kv, [self.plain_dim, self.value_dim], dim=-1)
        k_turned = self._turned(k_turning.view(batch, seq, 1, self.rope_dim), context)
        q = torch.cat((q_plain, self._turned(q_turning, context)), dim=-1)
        k = torch.cat((k_plain, k_turned.expand(-1, -1, k_plain.shape[2], -1)), dim=-1)
        out = self.core(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), context.positions, context.documents)
        return self.o(out.transpose(1, 2).reshape(batch * seq, -1))  # type: ignore[no-any-return]

    def core(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, documents: Tensor | None) -> Tensor:
        """The kernel on projected heads: the part without weights, which selective recomputation computes twice."""
        return self.kernel(
            q, k, v, causal=self.causal, window=self.window, documents=documents, positions=positions, scale=self.scale
        )

    def _queries(self, x: Tensor) -> Tensor:
        if not hasattr(self, "q_down"):
            return self.q(self.q_whole(x))  # type: ignore[no-any-return]
        return self.q_up(self.q_whole(self.q_norm(self.q_down(x))))  # type: ignore[no-any-return]

    def _turned(self, x: Tensor, context: Context) -> Tensor:
        assert context.rope is not None
        return rotate(parted(x) if self.neighbours else x, *context.rope)


def _to_heads(inputs: int, heads: int, width: int, device: torch.device | str, dtype: torch.dtype) -> Linear:
    """A projection up, which says how many of its outputs are one head."""
    linear = Linear(inputs, heads * width, False, device, dtype)
    linear.head_rows = width
    return linear
