"""Which rank orthogonalises which matrix, and how a matrix comes together from its boxes and goes back to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.train.optim.reduce import Box, group_size, transport

_ROUND = 2**26
"""Elements that each rank assembles at a time, about: bounds the extra memory (a few buffers of 128 MiB in bf16)."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One box of a matrix: the rank that sends it to the owner, and all ranks that hold it."""

    sender: int
    holders: tuple[int, ...]
    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def numel(self) -> int:
        """Elements."""
        return self.shape[0] * self.shape[1]

    def of(self, matrix: Tensor) -> Tensor:
        """The box as a view of the whole matrix."""
        return matrix.narrow(0, self.rows.start, self.shape[0]).narrow(1, self.columns.start, self.shape[1])


@dataclass(frozen=True, eq=False)
class Matrix:
    """One matrix: a parameter, or one place of a stack of them."""

    parameter: int
    """Its place in the list of parameters."""
    place: tuple[int, ...]
    """In the whole stack; () for a parameter of two dimensions."""
    shape: tuple[int, int]
    owner: int
    pieces: tuple[Piece, ...]


def assign_matrices(shapes: Sequence[tuple[int, ...]], boxes: Sequence[Sequence[Box]]) -> list[list[Matrix]]:
    """All matrices of `shapes` in rounds; `boxes` by rank and parameter. The same on every rank.

    A matrix that some ranks hold whole is owned by one of them, another by any rank; in both cases by the one with
    the least work so far, where work is m n min(m, n), which the Newton-Schulz steps cost. Each round has at most
    about `_ROUND` elements a rank.
    """
    ranks = len(boxes)
    load = [0] * ranks
    rounds: list[list[Matrix]] = [[]]
    filled = 0
    for parameter, shape in enumerate(shapes):
        m, n = shape[-2:]
        for place in itertools.product(*(range(length) for length in shape[:-2])):
            held = _held([of_rank[parameter] for of_rank in boxes], place)
            complete = [rank for box, holders in held.items() if box.size == (m, n) for rank in holders]
            owner = min(complete or range(ranks), key=lambda rank: load[rank])
            load[owner] += m * n * min(m, n)
            pieces = tuple(_piece(box, holders, owner) for box, holders in held.items())
            if filled and filled + m * n > _ROUND * ranks:
                rounds.append([])
                filled = 0
            filled += m * n
            rounds[-1].append(Matrix(parameter, place, (m, n), owner, pieces))
    return rounds


def _held(boxes: Sequence[Box], place: tuple[int, ...]) -> dict[Box, list[int]]:
    """The distinct boxes of the matrix at `place`, with the ranks that hold each."""
    held: dict[Box, list[int]] = {}
    for rank, box in enumerate(boxes):
        inside = all(
            start <= index < start + length
            for index, start, length in zip(place, box.offset[:-2], box.size[:-2], strict=True)
        )
        if inside and box.numel:
            held.setdefault(Box(box.offset[-2:], box.size[-2:]), []).append(rank)
    return held


def _piece(box: Box, holders: list[int], owner: int) -> Piece:
    rows, columns = box.slices
    # Copies take turns at sending; an owner asks nobody for what it has.
    sender = owner if owner in holders else holders[owner % len(holders)]
    return Piece(sender, tuple(holders), rows, columns)


class Traffic:
    """What one rank sends and receives in one all-to-all; fixed once, used in every step."""

    def __init__(self, routes: Sequence[tuple[Matrix, Piece, int, int]], group: dist.ProcessGroup | None) -> None:
        """`routes` are (matrix, piece, source, target), the same list on every rank."""
        self._group = group
        ranks = group_size(group)
        rank = dist.get_rank(group) if ranks > 1 else 0
        # Both ends list the pieces of a pair of ranks in the order of `routes`.
        outgoing = sorted((route for route in routes if route[2] == rank), key=lambda route: route[3])
        incoming = sorted((route for route in routes if route[3] == rank), key=lambda route: route[2])
        self._out = [route[:2] for route in outgoing]
        self._in = [route[:2] for route in incoming]
        self._sent, self._received = [0] * ranks, [0] * ranks
        for _, piece, _, target in outgoing:
            self._sent[target] += piece.numel
        for _, piece, source, _ in incoming:
            self._received[source] += piece.numel

    def run(self, value: Callable[[Matrix, Piece], Tensor], like: Tensor) -> list[tuple[Matrix, Piece, Tensor]]:
        """Send `value(matrix, piece)` of each piece that leaves; returns those that arrive, as `like` in dtype."""
        empty = torch.empty(0, dtype=like.dtype, device=like.device)
        sent = torch.cat([empty, *(value(matrix, piece).reshape(-1) for matrix, piece in self._out)])
        received = self._exchange(sent)
        values = torch.split(received, [piece.numel for _, piece in self._in])
        return [(*pair, value.view(pair[1].shape)) for pair, value in zip(self._in, values, strict=True)]

    def _exchange(self, sent: Tensor) -> Tensor:
        if group_size(self._group) == 1:
            return sent
        home, width = sent.device, sent.element_size()
        raw = sent.to(transport(home, self._group)).view(torch.uint8)  # gloo does not know every dtype
        received = raw.new_empty(sum(self._received) * width)
        into, out = ([count * width for count in counts] for counts in (self._received, self._sent))
        dist.all_to_all_single(received, raw, into, out, group=self._group)
        return received.view(sent.dtype).to(home)


class Round:
    """Some matrices: whole at their owners, in boxes elsewhere."""

    def __init__(self, matrices: Sequence[Matrix], group: dist.ProcessGroup | None) -> None:
        pieces = [(matrix, piece) for matrix in matrices for piece in matrix.pieces]
        self._gather = Traffic([(matrix, piece, piece.sender, matrix.owner) for matrix, piece in pieces], group)
        self._scatter = Traffic(
            [(matrix, piece, matrix.owner, holder) for matrix, piece in pieces for holder in piece.holders], group
        )

    def map(
        self, box: Callable[[Matrix], Tensor], function: Callable[[Tensor], Tensor], like: Tensor
    ) -> list[tuple[Matrix, Tensor]]:
        """Apply `function` to every whole matrix at its owner; returns this rank's boxes of the results.

        `box(matrix)` is this rank's box; `like` gives the dtype that travels, and the device. Collective.
        """
        whole: dict[Matrix, Tensor] = {}
        for matrix, piece, value in self._gather.run(lambda matrix, _: box(matrix).to(like.dtype), like):
            if matrix not in whole:
                whole[matrix] = torch.empty(matrix.shape, dtype=like.dtype, device=like.device)
            piece.of(whole[matrix]).copy_(value)
        done = {matrix: function(whole.pop(matrix)) for matrix in list(whole)}
        arrived = self._scatter.run(lambda matrix, piece: piece.of(done[matrix]), like)
        return [(matrix, value) for matrix, _, value in arrived]
