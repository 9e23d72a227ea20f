"""Norms: root mean square (arXiv:1910.07467) and layer norm, as the architecture asks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

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
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class LayerNorm(nn.LayerNorm):
    """Under autocast the result would be wide: more to keep, more for tensor ranks to send."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, size] → the same shape and dtype."""
        return super().forward(x).to(x.dtype)
