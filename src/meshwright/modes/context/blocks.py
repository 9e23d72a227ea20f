"""Attention of some queries to some keys, in parts that add up to the whole softmax.

`attend` gives the values' weighted means and the log-sum-exp of the scores. Two parts over different keys merge as

    lse = log(exp(lse₁) + exp(lse₂)),   out = out₁ · exp(lse₁ - lse) + out₂ · exp(lse₂ - lse)

(arXiv:2205.14135 section 3.1; arXiv:2310.01889 section 3). Backward needs the whole softmax's out and lse only, and the
gradients of the parts add up.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from meshwright.modes.accelerator import on_accelerator, stands_in
from meshwright.modes.context.kernels import BlockKernel, CpuFlash, CudaEfficient, CudaFlash
from meshwright.modes.context.math_kernel import MathKernel

_FLASH_DIM = 256
"""The largest head dimension of FlashAttention-2."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    mask: Tensor | None = None,
    scale: float | None = None,
    kernel: type[BlockKernel] | None = None,
) -> tuple[Tensor, Tensor]:
    """out [batch, heads, queries, dim] in q's dtype, and lse [batch, heads, queries] in `sum_dtype`.

    q [batch, heads, queries, dim]; k, v [batch, kv_heads, keys, dim]. `causal`: query i sees keys 0 to i, of as many.
    `mask` (not with `causal`): bool [1 or batch, 1, queries, keys], True where a query sees a key. A query that sees
    none gets 0 and -inf. `kernel`: instead of the fastest that takes this device, dtype and mask.
    """
    _check(q, k, causal, mask)
    kernel = kernel or choose_kernel(q, v, mask)
    scale = scale or 1.0 / math.sqrt(q.shape[-1])
    q, k, v = _dense(q), _dense(k), _dense(v)
    if mask is None:
        return kernel.forward(q, k, v, None, causal, scale)
    # Kernels disagree on what a row without keys gives (0, NaN or the mean). So it sees all, and is cleared after.
    blind = ~mask.any(-1)
    out, lse = kernel.forward(q, k, v, _bias(mask | blind.unsqueeze(-1), q.dtype), False, scale)
    return out.masked_fill(blind.unsqueeze(-1), 0.0), lse.masked_fill(blind, float("-inf"))


def attend_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool,
    mask: Tensor | None = None,
    scale: float | None = None,
    kernel: type[BlockKernel] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from these keys, in their dtypes.

    `grad`, `out` and `lse` are of the whole softmax (all keys), the rest is as for `attend`.
    """
    _check(q, k, causal, mask)
    kernel = kernel or choose_kernel(q, v, mask)
    scale = scale or 1.0 / math.sqrt(q.shape[-1])
    bias = None
    if mask is not None:
        bias = _bias(mask, q.dtype)
        # A row that sees no key anywhere: exp(-inf - 0) is the 0 that exp(-inf + inf) is not.
        lse = lse.masked_fill(lse == float("-inf"), 0.0)
    return kernel.backward(_dense(grad), _dense(q), _dense(k), _dense(v), _dense(out), lse, bias, causal, scale)


def choose_kernel(q: Tensor, v: Tensor, mask: Tensor | None) -> type[BlockKernel]:
    """The fastest kernel for this device, dtype, mask and widths."""
    narrow, alike = v.shape[-1] <= q.shape[-1], v.shape[-1] == q.shape[-1]
    if not on_accelerator(q.device) and q.is_floating_point() and narrow:
        return CpuFlash
    if q.device.type == "cuda" or stands_in():
        short = q.dtype in (torch.float16, torch.bfloat16) and q.shape[-1] <= _FLASH_DIM
        if mask is None and short and alike and _ampere(q):
            return CudaFlash
        if q.dtype in (torch.float16, torch.bfloat16, torch.float32):
            return CudaEfficient
    return MathKernel


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which partial results are added up: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def _ampere(q: Tensor) -> bool:
    """FlashAttention-2 needs compute capability 8.0. Fake tensors on a machine without a GPU stand for a new one."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability(q.device) >= (8, 0)


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query sees a key, -inf elsewhere."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


def _dense(x: Tensor) -> Tensor:
    """Kernels read a head's numbers in one go."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _check(q: Tensor, k: Tensor, causal: bool, mask: Tensor | None) -> None:
    if causal and mask is not None:
        raise ValueError("A mask holds causality too: causal and mask exclude each other.")
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError(f"Causal attention pairs queries and keys; there are {q.shape[2]} and {k.shape[2]}.")
