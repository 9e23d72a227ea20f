"""Norms: root mean square (arXiv:1910.07467) and layer norm, as the architecture asks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshwright.modes.accelerator import stands_in
from meshwright.train.models.architecture import Architecture


def make_norm(a: Architecture, size: int, device: torch.device | str, dtype: torch.dtype) -> nn.Module:
    """The architecture's norm over the last `size` numbers. It gives the dtype that it takes."""
    if a.model.norm == "rmsnorm":
        return RmsNorm(size, eps=a.norm_eps, device=device, dtype=dtype)
    return LayerNorm(size, eps=a.norm_eps, bias=a.model.norm == "layernorm", device=device, dtype=dtype)


class RmsNorm(nn.RMSNorm):
    """Under autocast, with a weight in fp32, PyTorch would take an unfused path, and the result might be wide."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, size] → the same shape and dtype."""
        weight = self.weight.to(x.dtype)
        if stands_in():
            return _RmsNormOnGpu.apply(x, weight)  # type: ignore[no-any-return, no-untyped-call]
        return functional.rms_norm(x, self.normalized_shape, weight, self.eps)


class _RmsNormOnGpu(torch.autograd.Function):
    """The memory of PyTorch's fused kernel for GPUs, which on a CPU is made of many operations: no numbers.

    Kept are the input, the weight and the reciprocal root, one fp32 number a row.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, x.new_empty((*x.shape[:-1], 1), dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class LayerNorm(nn.LayerNorm):
    """Under autocast a GPU would compute and give fp32: more to keep, more for tensor ranks to send."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, size] → the same shape and dtype."""
        weight = self.weight.to(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if stands_in():
            return _LayerNormOnGpu.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]
        with torch.autocast(x.device.type, enabled=False):
            return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class _LayerNormOnGpu(torch.autograd.Function):
    """The memory of PyTorch's kernel for GPUs: no numbers. Mean and reciprocal deviation of a row are fp32 there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = (*x.shape[:-1], 1)
        statistics = (x.new_empty(rows, dtype=torch.float32) for _ in range(2))
        ctx.save_for_backward(x, weight, bias, *statistics)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight, bias, _, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight), None if bias is None else torch.empty_like(bias)
