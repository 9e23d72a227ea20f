"""Which part of the score matrix has to be computed: rectangles of queries × keys. Pure arithmetic, no tensors.

A rank's tokens are a few runs of consecutive places in the sequence, in ascending order. All of this is known from the
runs alone, so nothing is computed to learn that it was not needed, and no value of a tensor is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Runs = tuple[tuple[int, int], ...]
"""(start, stop) in the sequence, ascending, disjoint."""
MASKED_ROWS = 1024
"""Queries of one masked piece: bounds the memory of a mask, and the keys outside a window that are computed."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Queries [row, row_stop) × keys [key, key_stop), counted within the tensors at hand."""

    row: int
    row_stop: int
    key: int
    key_stop: int
    kind: str
    """full: all scores; causal: query i sees keys 0 to i of the piece; masked: by place and document."""
    row_place: int
    """Place of the first query in the sequence; masked pieces are consecutive places."""
    key_place: int

    @property
    def scores(self) -> int:
        """Entries of the score matrix that a kernel computes."""
        rows = self.row_stop - self.row
        return rows * (rows + 1) // 2 if self.kind == "causal" else rows * (self.key_stop - self.key)


def pieces(rows: Runs, keys: Runs, *, causal: bool, window: int = 0, documents: bool = False) -> list[Piece]:
    """The pieces that queries at `rows` need of keys at `keys`; no two share an entry.

    A run of `rows` lies inside one run of `keys` or outside all. `window`: tokens seen, itself among them; 0: all.
    `documents`: masks by document come on top, so that no piece is known to be whole.
    """
    if documents or window:
        return list(_masked(rows, keys, causal, window, documents))
    if not causal:
        return [Piece(0, length(rows), 0, length(keys), "full", rows[0][0], keys[0][0])]
    if rows == keys:  # ascending runs: the order within the tensors is the order in the sequence
        return [Piece(0, length(rows), 0, length(keys), "causal", rows[0][0], keys[0][0])]
    return list(_causal(rows, keys))


def length(runs: Runs) -> int:
    """Tokens in all runs."""
    return sum(stop - start for start, stop in runs)


def _causal(rows: Runs, keys: Runs) -> Iterator[Piece]:
    """Runs of queries that see the same keys whole make one piece; a run's own keys are a causal one."""
    whole: list[tuple[int, int, int, int]] = []  # row, row_stop, keys before them, place of the first row
    for row, start, stop in _offsets(rows):
        before = sum(min(max(start - key_start, 0), key_stop - key_start) for key_start, key_stop in keys)
        if whole and whole[-1][2] == before:
            whole[-1] = (whole[-1][0], row + stop - start, before, whole[-1][3])
        else:
            whole.append((row, row + stop - start, before, start))
        for key, key_start, key_stop in _offsets(keys):
            if key_start <= start and stop <= key_stop:
                at = key + start - key_start
                yield Piece(row, row + stop - start, at, at + stop - start, "causal", start, start)
    for row, row_stop, before, place in whole:
        if before:
            yield Piece(row, row_stop, 0, before, "full", place, keys[0][0])


def _masked(rows: Runs, keys: Runs, causal: bool, window: int, documents: bool) -> Iterator[Piece]:
    for row, run_start, run_stop in _offsets(rows):
        for start in range(run_start, run_stop, MASKED_ROWS):
            stop = min(start + MASKED_ROWS, run_stop)
            for key, key_start, key_stop in _offsets(keys):
                first = max(key_start, start - window + 1) if window else key_start
                end = min(key_stop, stop) if causal else min(key_stop, stop - 1 + window) if window else key_stop
                if end <= first:
                    continue
                at, own = key + first - key_start, row + start - run_start
                kind = "masked" if documents or _cut(start, stop, first, end, causal, window) else "full"
                yield Piece(own, own + stop - start, at, at + end - first, kind, start, first)


def _cut(start: int, stop: int, first: int, end: int, causal: bool, window: int) -> bool:
    """Whether causality or the window hides some key in [first, end) from some query in [start, stop)."""
    if causal and end - 1 > start:
        return True
    return bool(window) and (stop - 1 - first >= window or (not causal and end - 1 - start >= window))


def _offsets(runs: Runs) -> Iterator[tuple[int, int, int]]:
    """(offset within the tensor, start, stop) of each run."""
    offset = 0
    for start, stop in runs:
        yield offset, start, stop
        offset += stop - start
