"""Context: what attention over split sequences sends, for one layer and micro-batch (`modes.context`).

A rank holds t tokens; K = t · key/value heads · (key + value width) are the numbers of its keys and values.

| kind | forward | backward | source |
| --- | --- | --- | --- |
| ring | c-1 sends of K | the same, and as many of K gradients in fp32 at least | arXiv:2310.01889 |
| allgather | an all-gather of c K | the same, and a reduce-scatter of c K in fp32 at least | arXiv:2407.21783, 3.3.2 |
| ulysses | two all-to-alls: queries, keys and values there, outputs back | the same | arXiv:2309.14509 |

Ulysses copies key/value heads until the ranks divide them. Documents, where sequences hold several, are gathered once
a forward pass, 8 bytes a token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshwright.cost.wire.event import Event, send


@dataclass(frozen=True, slots=True)
class Attention:
    """The sizes of one attention on one rank."""

    kind: str
    ranks: int
    tokens: int
    """Of this rank."""
    heads: int
    kv_heads: int
    """Both of this tensor rank."""
    head_dim: int
    """Of queries and keys."""
    value_dim: int
    element: int
    """Bytes of an activation."""
    documents: bool = False

    @property
    def block(self) -> int:
        """K: numbers in the rank's keys and values."""
        return self.tokens * self.kv_heads * (self.head_dim + self.value_dim)

    @property
    def wide(self) -> int:
        """Bytes of a number in which gradients are added up."""
        return max(self.element, 4)


def context_forward(a: Attention) -> list[Event]:
    """Collectives of a forward pass, in order."""
    if a.ranks == 1:
        return []
    found = [Event("context", "all-gather", a.ranks, 8 * a.tokens * a.ranks)] if a.documents else []
    if a.kind == "ring":
        return [*found, send("context", a.block * a.element, a.ranks - 1)]
    if a.kind == "allgather":
        return [*found, Event("context", "all-gather", a.ranks, a.ranks * a.block * a.element)]
    return [*found, *_trades(a)]


def context_backward(a: Attention) -> list[Event]:
    """Collectives of a backward pass, without recomputation."""
    if a.ranks == 1:
        return []
    if a.kind == "ring":
        return [send("context", a.block * a.element, a.ranks - 1), send("context", a.block * a.wide, a.ranks - 1)]
    if a.kind == "allgather":
        whole = a.ranks * a.block
        return [
            Event("context", "all-gather", a.ranks, whole * a.element),
            Event("context", "reduce-scatter", a.ranks, whole * a.wide),
        ]
    return _trades(a)


def context_replay(a: Attention) -> list[Event]:
    """Collectives that the recomputation of attention alone runs again: what nothing after it needs is left out."""
    forward = context_forward(a)
    return forward[:-1] if a.kind == "ulysses" else forward


def _trades(a: Attention) -> list[Event]:
    copied = math.lcm(a.kv_heads, a.ranks)
    there = a.tokens * (a.heads * a.head_dim + copied * (a.head_dim + a.value_dim)) * a.element
    back = a.tokens * a.heads * a.value_dim * a.element
    return [Event("context", "all-to-all", a.ranks, there), Event("context", "all-to-all", a.ranks, back)]
