"""Mlp: the dense feed-forward part, gated (SwiGLU, arXiv:2002.05202) or plain."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshwright.train.models.architecture import Architecture
from meshwright.train.models.unset import Linear


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _relu_squared(x: Tensor) -> Tensor:
    return functional.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": functional.relu,
    "relu2": _relu_squared,
}
"""By the name that `Architecture.activation` holds."""


class Mlp(nn.Module):
    """down(act(gate(x)) · up(x)), or down(act(up(x))) without a gate. x is [tokens, hidden]."""

    def __init__(self, a: Architecture, width: int, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        h, bias = a.model.hidden, a.model.mlp_bias
        self.act = ACTIVATIONS[a.activation]
        self.gate = Linear(h, width, bias, device, dtype) if a.model.gated_mlp else None
        self.up = Linear(h, width, bias, device, dtype)
        self.down = Linear(width, h, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] → [tokens, hidden]."""
        if self.gate is None:
            return self.down(self.act(self.up(x)))  # type: ignore[no-any-return]
        return self.down(self.act(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]
