"""Norms: root mean square (arXiv:1910.07467) and layer norm, as the architecture asks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meshwright.train.models.architecture import Architecture


def make_norm(a: Architecture, size: int, device: torch.device | str, dtype: torch.dtype) -> nn.Module:
    """The architecture's norm over the last `size` numbers. It gives the dtype that it takes."""
    if a.model.norm == "rmsnorm":
        return RmsNorm(size, eps=a.norm_eps, device=device, dtype=dtype)
    return LayerNorm(size, eps=a.norm_eps, bias=a.model.norm == "layernorm", device=device, dtype=dtype)


class RmsNorm(nn.RMSNorm):
    """Under autocast, with weights in fp32, the result would be wide: more to keep, more for tensor ranks to send."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, size] → the same shape and dtype."""
        return super().forward(x).to(x.dtype)


class LayerNorm(nn.LayerNorm):
    """See RmsNorm."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, size] → the same shape and dtype."""
        return super().forward(x).to(x.dtype)
