"""A model that this package did not write: [batch, sequence, hidden] throughout, biases everywhere, and its recipe."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright.modes.parts import Part
from meshwright.modes.recipe import Recipe

HIDDEN, HEAD_DIM, HEADS = 8, 4, 4


class ToyAttention(nn.Module):
    """Four heads of queries, `kv_heads` of keys and values."""

    def __init__(self, kv_heads: int) -> None:
        super().__init__()
        self.head_dim = HEAD_DIM
        self.q = nn.Linear(HIDDEN, HEADS * HEAD_DIM)
        self.k = nn.Linear(HIDDEN, kv_heads * HEAD_DIM)
        self.v = nn.Linear(HIDDEN, kv_heads * HEAD_DIM)
        self.q_norm = nn.LayerNorm(HEAD_DIM)
        self.o = nn.Linear(HEADS * HEAD_DIM, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for f in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(self.q_norm(q), k, v, enable_gqa=True)
        return self.o(out.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class ToyMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, 12)
        self.down = nn.Linear(12, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


class ToyBlock(nn.Module):
    def __init__(self, kv_heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.attn = ToyAttention(kv_heads)
        self.mlp = ToyMlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)  # type: ignore[no-any-return]


class Toy(nn.Module):
    """Embedding and positions, two blocks, head."""

    recipe = Recipe(
        order=("table", "places", "blocks.*", "head"),
        blocks="blocks.*",
        tensor={
            "table": "embedding",
            "places": "positions",
            "blocks.*.norm": "sequence",
            "blocks.*.attn": "enter",
            "blocks.*.attn.q": "column",
            "blocks.*.attn.k": "columns_kv",
            "blocks.*.attn.v": "columns_kv",
            "blocks.*.attn.q_norm": "partial",
            "blocks.*.attn.o": "row",
            "blocks.*.mlp": "enter",
            "blocks.*.mlp.up": "column",
            "blocks.*.mlp.down": "row",
            "head": "head",
        },
        sequence_dim=1,
    )

    def __init__(self, vocabulary: int, kv_heads: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, HIDDEN)
        self.places = nn.Embedding(16, HIDDEN)
        self.blocks = nn.ModuleList(ToyBlock(kv_heads) for _ in range(2))
        self.head = nn.Linear(HIDDEN, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        """[batch, seq] → [batch, seq, vocabulary]."""
        x = self.table(ids) + self.places(torch.arange(ids.shape[1]).expand_as(ids))
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


def make_toy(vocabulary: int, kv_heads: int) -> Toy:
    """The same numbers in every process, all of them random: norms and biases, too."""
    generator = torch.Generator().manual_seed(vocabulary + kv_heads)
    toy = Toy(vocabulary, kv_heads).double()
    with torch.no_grad():
        for parameter in toy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return toy


@dataclass
class Box:
    """A part as it travels from a rank."""

    name: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    size: tuple[int, ...]
    gradient: Tensor | None
    data: Tensor


def boxes(parts: list[Part]) -> list[Box]:
    return [
        Box(p.name, p.shape, p.offset, p.size, None if p.gradient is None else p.gradient.clone(), p.data.clone())
        for p in parts
    ]


def joined(of_ranks: list[list[Box]], what: str = "gradient") -> dict[str, Tensor]:
    """Whole gradients (or data) from the ranks' boxes. Raises AssertionError where copies differ or a number lacks."""
    whole: dict[str, Tensor] = {}
    for box in (box for rank in of_ranks for box in rank):
        into = whole.setdefault(box.name, torch.full(box.shape, torch.nan, dtype=torch.float64))
        for dim, (start, length) in enumerate(zip(box.offset, box.size, strict=True)):
            into = into.narrow(dim, start, length)
        value = getattr(box, what)
        assert value is not None, box.name
        known = ~into.isnan()
        assert torch.equal(into[known], value.double()[known]), f"copies of {box.name} differ"
        into.copy_(value)
    for name, tensor in whole.items():
        assert not tensor.isnan().any(), f"part of {name} is on no rank"
    return whole
