"""Which tokens of a sequence a context rank holds.

Causal attention gives late tokens more work than early ones. Ring and all-gather attention therefore cut the sequence
into 2 × ranks chunks, of which rank r holds chunks r and 2 × ranks - 1 - r: every rank computes as many scores (the
head-and-tail split of Llama 3, arXiv:2407.21783 section 3.3.2). A sequence of an odd number of tokens a rank has no
such chunks and is cut into consecutive parts, of which the last works most. Ulysses balances by heads and needs
consecutive parts.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from meshwright.modes.context.pieces import Runs
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout

B = TypeVar("B")


def runs(seq_len: int, ranks: int, rank: int, kind: str) -> Runs:
    """The places of context rank `rank`'s tokens, as runs (start, stop).

    Raises LayoutError when the sequence does not divide.
    """
    if seq_len % ranks:
        raise LayoutError(
            f"A sequence of {seq_len} tokens cannot be split over {ranks} context ranks.",
            [f"cp{n}" for n in range(ranks, 0, -1) if seq_len % n == 0][:3],
        )
    if ranks == 1 or not balanced(seq_len, ranks, kind):
        part = seq_len // ranks
        return ((rank * part, (rank + 1) * part),)
    chunk = seq_len // (2 * ranks)
    head, tail = rank * chunk, (2 * ranks - 1 - rank) * chunk
    if head + chunk == tail:  # the last rank's two chunks are neighbours
        return ((head, tail + chunk),)
    return ((head, head + chunk), (tail, tail + chunk))


def balanced(seq_len: int, ranks: int, kind: str) -> bool:
    """Whether each rank holds a chunk from the head of the sequence and one from its tail."""
    return kind != "ulysses" and seq_len % (2 * ranks) == 0


def indices(seq_len: int, layout: Layout, rank: int) -> Tensor:
    """Places in the sequence of context rank `rank`'s tokens, int64 [seq_len / context], in the order it holds them."""
    parts = runs(seq_len, layout.context, rank, layout.context_kind)
    return torch.cat([torch.arange(start, stop) for start, stop in parts])


def take(tensor: Tensor, layout: Layout, rank: int) -> Tensor:
    """Context rank `rank`'s columns of `tensor` [batch, seq_len, ...]: tokens, targets, positions or documents."""
    parts = runs(tensor.shape[1], layout.context, rank, layout.context_kind)
    return torch.cat([tensor[:, start:stop] for start, stop in parts], dim=1)


def split_batch(batch: B, layout: Layout, rank: int) -> B:
    """The dataclass `batch` with every tensor field [batch, seq_len, ...] cut to context rank `rank`'s tokens."""
    assert is_dataclass(batch)
    cut = {
        field.name: take(value, layout, rank)
        for field in fields(batch)
        if isinstance(value := getattr(batch, field.name), Tensor)
    }
    return replace(batch, **cut)  # type: ignore[type-var]


def natural(parts: Tensor, kind: str, dim: int) -> Tensor:
    """All ranks' tokens in the order of the sequence.

    `parts` [ranks, ...] holds each rank's tokens along `dim` (counted in a part); returns [...] with all along `dim`.
    """
    found = sorted((start, rank, offset, stop - start) for rank, offset, start, stop in _placed(parts, kind, dim))
    return torch.cat([parts[rank].narrow(dim, offset, size) for _, rank, offset, size in found], dim)


def apart(whole: Tensor, ranks: int, kind: str, dim: int) -> Tensor:
    """The inverse of `natural`: [...] with all tokens along `dim` → [ranks, ...]."""
    shape = list(whole.shape)
    shape[dim] //= ranks
    parts = whole.new_empty([ranks, *shape])
    for rank, offset, start, stop in _placed(parts, kind, dim):
        parts[rank].narrow(dim, offset, stop - start).copy_(whole.narrow(dim, start, stop - start))
    return parts


def _placed(parts: Tensor, kind: str, dim: int) -> list[tuple[int, int, int, int]]:
    """(rank, offset in its part, start, stop) of every run."""
    ranks = parts.shape[0]
    seq_len = parts.shape[dim + 1] * ranks
    found = []
    for rank in range(ranks):
        offset = 0
        for start, stop in runs(seq_len, ranks, rank, kind):
            found.append((rank, offset, start, stop))
            offset += stop - start
    return found
