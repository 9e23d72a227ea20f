"""Ownership: which rank writes which box, so that copies are written once and the ranks write alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshwright.train.checkpoint.boxes import Box, person_name, volume
from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.checkpoint.ranks import Ranks


@dataclass(frozen=True)
class Claim:
    """What a rank says of one of its boxes."""

    key: str
    offset: tuple[int, ...]
    size: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    bytes: int


def claims(boxes: Iterable[Box]) -> dict[Claim, Box]:
    """A rank's boxes that could be written: neither empty nor second copies. Equal ones are one claim."""
    return {
        Claim(box.key, box.offset, box.size, box.shape, str(box.tensor.dtype), box.bytes): box
        for box in boxes
        if not box.copy and not box.empty
    }


class Ownership:
    """Remembers who writes what. Boxes stay the same from save to save, so ranks ask each other only once."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._claimed: tuple[Claim, ...] | None = None
        self._mine: list[Claim] = []
        self.total_bytes = 0
        """Of all boxes that all ranks write."""
        self.total_boxes = 0

    def mine(self, boxes: Sequence[Box]) -> list[Box]:
        """The boxes that this rank writes. Collective.

        Raises CheckpointError when the ranks' boxes do not make up whole tensors.
        """
        claimed = claims(boxes)
        keys = tuple(claimed)
        if not self.ranks.everywhere(keys == self._claimed):
            self._mine, self.total_bytes, self.total_boxes = self.ranks.exchange(keys, _assign_all)
            self._claimed = keys
        return [claimed[key] for key in self._mine]


def _assign_all(claimed: list[tuple[Claim, ...]]) -> list[tuple[list[Claim], int, int]]:
    shares = assign(claimed)
    boxes = [claim for share in shares for claim in share]
    check_whole(boxes)
    return [(share, sum(claim.bytes for claim in boxes), len(boxes)) for share in shares]


def assign(claimed: Sequence[Sequence[Claim]]) -> list[list[Claim]]:
    """Each rank's share of the boxes: the largest first, each to the rank that holds it and has least to write."""
    holders: dict[Claim, list[int]] = defaultdict(list)
    for rank, keys in enumerate(claimed):
        for claim in keys:
            holders[claim].append(rank)
    shares: list[list[Claim]] = [[] for _ in claimed]
    load = [0] * len(claimed)
    # Boxes with one holder first: they leave no choice, and the choices then even the ranks out.
    for claim, ranks in sorted(holders.items(), key=lambda item: (len(item[1]) > 1, -item[0].bytes)):
        rank = min(ranks, key=lambda r: load[r])
        shares[rank].append(claim)
        load[rank] += claim.bytes
    return shares


def check_whole(boxes: Iterable[Claim]) -> None:
    """Raises CheckpointError unless the boxes of each tensor agree on it and have as many numbers as it has."""
    by_key: dict[str, list[Claim]] = defaultdict(list)
    for claim in boxes:
        by_key[claim.key].append(claim)
    for key, parts in by_key.items():
        kinds = {(claim.shape, claim.dtype) for claim in parts}
        if len(kinds) > 1:
            said = ", ".join(f"{list(shape)} {dtype}" for shape, dtype in sorted(kinds))
            raise CheckpointError(f"The ranks do not agree on {person_name(key)}: {said}.")
        held, whole = sum(volume(claim.size) for claim in parts), volume(parts[0].shape)
        if held != whole:
            raise CheckpointError(
                f"The ranks hold {held} of the {whole} numbers of {person_name(key)}; cannot save it."
            )
