"""Norms: root mean square (arXiv:1910.07467) and layer norm, as the architecture asks."""

from __future__ import annotations

import torch
from torch import nn

from meshwright.train.models.architecture import Architecture


def make_norm(a: Architecture, size: int, device: torch.device | str, dtype: torch.dtype) -> nn.Module:
    """The architecture's norm over the last `size` numbers."""
    if a.model.norm == "rmsnorm":
        return nn.RMSNorm(size, eps=a.norm_eps, device=device, dtype=dtype)
    return nn.LayerNorm(size, eps=a.norm_eps, bias=a.model.norm == "layernorm", device=device, dtype=dtype)
