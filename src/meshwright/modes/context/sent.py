"""What each context rank sends for one attention of one micro-batch: the formulas of the three kinds."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attention:
    """The sizes of one attention on one rank."""

    ranks: int
    """Context ranks."""
    tokens: int
    """Of this rank: batch × seq_len / ranks."""
    heads: int
    """Of this tensor rank."""
    kv_heads: int
    head_dim: int
    element: int
    """Bytes of an activation."""
    documents: bool = False

    @property
    def block(self) -> int:
        """Numbers in a rank's keys and values."""
        return 2 * self.tokens * self.kv_heads * self.head_dim

    @property
    def wide(self) -> int:
        """Bytes of a number in which gradients are added up: at least float32."""
        return max(self.element, 4)


@dataclass(frozen=True, slots=True)
class Sent:
    """Collectives of one kind."""

    collective: str
    count: int
    bytes: int
    """Sent by a rank, in all of them."""


def sent_forward(kind: str, a: Attention) -> list[Sent]:
    """A forward pass (a recomputed one the same); the int64 documents are gathered where tokens have some."""
    c = a.ranks
    if c == 1:
        return []
    documents = (c - 1) * 8 * a.tokens if a.documents else 0
    if kind == "allgather":
        return [Sent("all-gather", 1 + a.documents, (c - 1) * a.block * a.element + documents)]
    found = [Sent("all-gather", 1, documents)] if a.documents else []
    if kind == "ring":
        return [Sent("send/recv", c - 1, (c - 1) * a.block * a.element), *found]
    return [_trades(a), *found]


def sent_backward(kind: str, a: Attention) -> list[Sent]:
    """A backward pass, without recomputation."""
    c = a.ranks
    if c == 1:
        return []
    if kind == "ring":
        return [Sent("send/recv", 2 * (c - 1), (c - 1) * a.block * (a.element + a.wide))]
    if kind == "allgather":
        return [
            Sent("all-gather", 1, (c - 1) * a.block * a.element),
            Sent("reduce-scatter", 1, (c - 1) * a.block * a.wide),
        ]
    return [_trades(a)]


def _trades(a: Attention) -> Sent:
    """Ulysses: queries, keys and values there, outputs back (backward: the other way round)."""
    copied = math.lcm(a.kv_heads, a.ranks)
    each = a.tokens * (2 * a.heads + 2 * copied) * a.head_dim // a.ranks
    return Sent("all-to-all", 2, (a.ranks - 1) * each * a.element)
