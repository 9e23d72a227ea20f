"""FLOPs of an operation of PyTorch: two for a multiplication and an addition.

Products: PyTorch's own table (`torch.utils.flop_counter`). Attention: two products forward, five backward, of the keys
that a query sees (arXiv:2205.14135; half of them where the kernel is told of causality), also for the CPU's kernel,
which PyTorch's table leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
MATMUL, ATTENTION = "matmul", "attention"

_FORWARD = {
    aten._scaled_dot_product_flash_attention_for_cpu: 4,
    aten._scaled_dot_product_flash_attention: 4,
    aten._scaled_dot_product_efficient_attention: 6,
    aten._scaled_dot_product_cudnn_attention: 6,
}
"""Where `is_causal` stands among the arguments (q, k, v, …)."""
_BACKWARD = {
    aten._scaled_dot_product_flash_attention_for_cpu_backward: 7,
    aten._scaled_dot_product_flash_attention_backward: 11,
    aten._scaled_dot_product_efficient_attention_backward: 11,
    aten._scaled_dot_product_cudnn_attention_backward: 14,
}
"""The same; arguments (gradient, q, k, v, …)."""


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> tuple[str, float] | None:
    """Kind and FLOPs; None: an operation that only moves numbers."""
    packet = func._overloadpacket
    if packet in _FORWARD:
        return ATTENTION, 2.0 * _pairs(args[:3], _causal(args, kwargs, _FORWARD[packet]))
    if packet in _BACKWARD:
        return ATTENTION, 5.0 * _pairs(args[1:4], _causal(args, kwargs, _BACKWARD[packet]))
    if packet is aten._grouped_mm:
        return MATMUL, _grouped(args[0], args[1])
    count: Callable[..., Any] | None = flop_registry.get(packet)
    return None if count is None else (MATMUL, float(count(*args, **kwargs, out_val=out)))


def _grouped(left: torch.Tensor, right: torch.Tensor) -> float:
    """Rows [m, k] with their group's [k, n]; or, of two matrices [m, k] and [k, n], groups of the inner rows."""
    return 2.0 * left.size(-2) * left.size(-1) * right.size(-1)


def _causal(args: tuple[Any, ...], kwargs: dict[str, Any], place: int) -> bool:
    return bool(kwargs.get("is_causal", args[place] if len(args) > place else False))


def _pairs(heads: tuple[Any, ...], causal: bool) -> float:
    """FLOPs of one product over queries and keys: the mean of the one along the keys' and the values' width."""
    q, k, v = heads
    seen = k.size(2) / 2 if causal else k.size(2)
    return float(q.size(0) * q.size(1) * q.size(2) * seen * (q.size(3) + v.size(3)))
