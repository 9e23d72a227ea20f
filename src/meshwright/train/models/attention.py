"""Attention: four projections around a kernel that can be replaced.

Head counts are read from the weights' shapes at run time, so that tensor parallelism can cut the weights from outside.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshwright.modes.accelerator import on_accelerator, stands_in
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.norms import make_norm
from meshwright.train.models.positions import rotate
from meshwright.train.models.unset import Linear


class Context:
    """What the blocks know of their tokens.

    No tuple and no dataclass: FSDP2 looks into those, and casts the tables to a lower precision in every block.
    """

    def __init__(
        self,
        positions: Tensor,
        documents: Tensor | None,
        rope: tuple[Tensor, Tensor] | None,
        sequence_of: Tensor | None,
    ) -> None:
        self.positions = positions
        """[batch, seq]"""
        self.documents = documents
        """[batch, seq], or None: each sequence is one document."""
        self.rope = rope
        """Cosine and sine [batch, seq, 1, head_dim/2]; None: no rotary positions."""
        self.sequence_of = sequence_of
        """[batch · seq]: which sequence a token belongs to; None: nobody asks."""


class Kernel(Protocol):
    """What computes attention. q is [batch, heads, seq, dim], k and v [batch, kv_heads, seq, dim] with fewer heads."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        causal: bool,
        window: int,
        documents: Tensor | None,
        positions: Tensor,
        scale: float | None = None,
    ) -> Tensor:
        """The values' weighted means [batch, heads, seq, dim of v]. `window`: tokens seen, itself among them; 0: all.

        `scale`: what scores are multiplied by; None: 1/√dim.
        """
        ...


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, window: int, documents: Tensor | None, positions: Tensor,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """PyTorch's scaled dot-product attention over whole sequences; a mask is built only where one is needed."""
    seq, grouped = q.shape[2], q.shape[1] != k.shape[1]
    masked = documents is not None or 0 < window < seq
    if grouped and on_accelerator(q.device) and (masked or q.dtype not in (torch.float16, torch.bfloat16)):
        # Of the kernels that take a mask or wide numbers without writing all scores out, none takes grouped heads.
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
        grouped = False
    mask = attention_mask(seq, causal, window, documents, q.device) if masked else None
    if v.shape[-1] < q.shape[-1] and (stands_in() or not on_accelerator(q.device)):
        return _narrow_values(q, k, v, mask, causal, scale)
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal and mask is None, scale=scale, enable_gqa=grouped
    )


def _narrow_values(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    """Values narrower than keys, where PyTorch's choice of a kernel must be helped; as many heads of all."""
    causal = causal and mask is None
    if stands_in():
        # What PyTorch chooses on a GPU, whose flash kernels want all of one width.
        bias = None if mask is None else q.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
        if bias is not None:
            bias = bias.expand(q.shape[0], q.shape[1], -1, -1)
        attend = torch.ops.aten._scaled_dot_product_efficient_attention
        return attend(q, k, v, bias, True, 0.0, causal, scale=scale)[0]  # type: ignore[no-any-return]
    # The fused kernel for CPUs wants all of one width, else all scores are written out. Zeros change no sum.
    width = v.shape[-1]
    v = functional.pad(v, (0, q.shape[-1] - width))
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
    return out[..., :width]


def attention_mask(seq: int, causal: bool, window: int, documents: Tensor | None, device: torch.device) -> Tensor:
    """True where a query (second last dimension) sees a key (last): [seq, seq], or [batch, 1, seq, seq]."""
    at = torch.arange(seq, device=device)
    distance = at[:, None] - at[None, :]
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if window:
        seen = seen & (distance.abs() < window)
    if documents is not None:
        seen = seen & (documents[:, None, :, None] == documents[:, None, None, :])
    return seen


class Attention(nn.Module):
    """Multi-head attention with grouped keys and values; x is [tokens, hidden]."""

    def __init__(self, a: Architecture, layer: int, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        m = a.model
        q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
        self.head_dim = m.head_dim
        self.causal = m.causal
        self.window = a.windows[layer]
        self.kernel: Kernel = sdpa
        self.q = Linear(m.hidden, q, m.qkv_bias, device, dtype)
        self.k = Linear(m.hidden, kv, m.qkv_bias, device, dtype)
        self.v = Linear(m.hidden, kv, m.qkv_bias, device, dtype)
        self.o = Linear(q, m.hidden, m.attention_out_bias, device, dtype)
        per_head = m.qk_norm == "head"
        self.q_norm = make_norm(a, m.head_dim, device, dtype) if per_head else None
        self.k_norm = make_norm(a, m.head_dim, device, dtype) if per_head else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """[tokens, hidden] → [tokens, hidden]; the tokens of `context.positions`, row by row."""
        batch, seq = context.positions.shape
        q = self.q(x).view(batch, seq, -1, self.head_dim)
        k = self.k(x).view(batch, seq, -1, self.head_dim)
        v = self.v(x).view(batch, seq, -1, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if context.rope is not None:
            q, k = rotate(q, *context.rope), rotate(k, *context.rope)
        out = self.core(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), context.positions, context.documents)
        return self.o(out.transpose(1, 2).reshape(batch * seq, -1))  # type: ignore[no-any-return]

    def core(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, documents: Tensor | None) -> Tensor:
        """The kernel on projected heads: the part without weights, which selective recomputation computes twice."""
        return self.kernel(q, k, v, causal=self.causal, window=self.window, documents=documents, positions=positions)
