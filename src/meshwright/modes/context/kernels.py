"""Kernels: the fused attentions of PyTorch behind one call, each with the log-sum-exp of its scores.

`F.scaled_dot_product_attention` drops the log-sum-exp, without which partial results cannot be added up, so the aten
operators below it are called. Shapes: q, out [batch, heads, queries, dim]; k, v [batch, kv_heads, keys, dim];
lse [batch, heads, queries]; bias broadcastable to [batch, heads, queries, keys]. v, and so out, may have another dim
where a kernel says so.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from meshwright.modes.context.heads import fold_heads, repeat_heads

aten = torch.ops.aten
_LSE_ALIGNMENT = 32
"""The memory-efficient kernels read rows of the log-sum-exp in groups of so many."""
_BIAS_ALIGNMENT = 16
_DIM_ALIGNMENT = 8


class BlockKernel(Protocol):
    """One fused attention and its backward."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Out and lse."""
        ...

    @staticmethod
    def backward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: Tensor | None, causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Gradients of q, k and v for the softmax that `lse` normalises."""
        ...


class CpuFlash:
    """PyTorch's flash attention for CPUs: float64, float32, bfloat16, float16; grouped heads; any bias.

    It wants all of one width: narrower values are filled up with zeros.
    """

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        dim, v = v.shape[-1], _widened(v, q)
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)
        return out[..., :dim], lse

    @staticmethod
    def backward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: Tensor | None, causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        dim, (grad, v, out) = v.shape[-1], (_widened(t, q) for t in (grad, v, out))
        dq, dk, dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, causal, attn_mask=bias, scale=scale
        )
        return dq, dk, dv[..., :dim]


class CudaFlash:
    """FlashAttention-2 (arXiv:2307.08691): float16 and bfloat16, grouped heads, no bias, head_dim up to 256."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        assert bias is None
        dim = q.shape[-1]
        q, k, v = (_pad_last(t, _DIM_ALIGNMENT) for t in (q, k, v))
        out, lse = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)[:2]
        return out[..., :dim], lse

    @staticmethod
    def backward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: Tensor | None, causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        assert bias is None
        dim, queries, keys = q.shape[-1], q.shape[2], k.shape[2]
        grad, q, k, v, out = (_pad_last(t, _DIM_ALIGNMENT) for t in (grad, q, k, v, out))
        # The state of the dropout's generator, which nothing reads at dropout 0.
        state = torch.empty(2, dtype=torch.uint64, device=q.device)
        dq, dk, dv = aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse.contiguous(), None, None, queries, keys, 0.0, causal, state, state[:0], scale=scale
        )
        return dq[..., :dim], dk[..., :dim], dv[..., :dim]


class CudaEfficient:
    """Memory-efficient attention (arXiv:2112.05682): float32 too, any bias, values of another width; grouped heads are
    repeated."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        dim, groups = v.shape[-1], q.shape[1] // k.shape[1]
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
        q, k, v = (_pad_last(t, _DIM_ALIGNMENT) for t in (q, k, v))
        out, lse = aten._scaled_dot_product_efficient_attention(
            q, k, v, _aligned(bias, q, k), True, 0.0, causal, scale=scale
        )[:2]
        return out[..., :dim], lse[..., : q.shape[2]]

    @staticmethod
    def backward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: Tensor | None, causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        dim, width, groups = q.shape[-1], v.shape[-1], q.shape[1] // k.shape[1]
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
        grad, q, k, v, out = (_pad_last(t, _DIM_ALIGNMENT) for t in (grad, q, k, v, out))
        # exp(score - inf) = 0 for the rows that only fill up.
        lse = pad(lse, (0, -lse.shape[-1] % _LSE_ALIGNMENT), value=float("inf")).contiguous()
        state = torch.empty((), dtype=torch.int64, device=q.device)
        dq, dk, dv, _ = aten._scaled_dot_product_efficient_attention_backward(
            grad, q, k, v, _aligned(bias, q, k), out, lse, state, state, 0.0, [True, True, True, False], causal,
            scale=scale,
        )  # fmt: skip
        return dq[..., :dim], fold_heads(dk[..., :dim], groups), fold_heads(dv[..., :width], groups)


def _widened(x: Tensor, q: Tensor) -> Tensor:
    """Of the queries' width, with zeros behind."""
    missing = q.shape[-1] - x.shape[-1]
    return pad(x, (0, missing)) if missing else x


def _pad_last(tensor: Tensor, multiple: int) -> Tensor:
    """Zeros behind the last dimension change no score and no sum."""
    missing = -tensor.shape[-1] % multiple
    return pad(tensor, (0, missing)) if missing else tensor


def _aligned(bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """`bias` as the memory-efficient kernels read it: all heads, rows that start at aligned addresses."""
    if bias is None:
        return None
    keys = k.shape[2]
    return _pad_last(bias, _BIAS_ALIGNMENT)[..., :keys].expand(q.shape[0], q.shape[1], q.shape[2], keys)
