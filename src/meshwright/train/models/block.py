"""Block: attention and a feed-forward part, each on a normalised input, each added to what flows through."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meshwright.train.models.architecture import Architecture
from meshwright.train.models.attention import Attention, Context
from meshwright.train.models.latent_attention import LatentAttention
from meshwright.train.models.mlp import Mlp
from meshwright.train.models.moe import Moe
from meshwright.train.models.norms import make_norm


class Block(nn.Module):
    """One layer; it holds `mlp` or `moe`."""

    def __init__(self, a: Architecture, layer: int, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        self.attention_norm = make_norm(a, a.model.hidden, device, dtype)
        self.attention = (Attention if a.model.latent is None else LatentAttention)(a, layer, device, dtype)
        self.mlp_norm = make_norm(a, a.model.hidden, device, dtype)
        if a.model.is_moe_layer(layer):
            self.moe = Moe(a, device, dtype)
        else:
            self.mlp = Mlp(a, a.model.ffn_hidden, device, dtype)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """[tokens, hidden] → [tokens, hidden]."""
        x = x + self.attention(self.attention_norm(x), context)
        normed = self.mlp_norm(x)
        return x + (self.mlp(normed) if hasattr(self, "mlp") else self.moe(normed, context))  # type: ignore[no-any-return]
