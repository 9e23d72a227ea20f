"""Boxes: everything that a checkpoint holds is a box of a whole, named tensor.

A parameter's Part is one; an optimizer state that is shaped like the Part lies where the Part lies. A checkpoint knows
nothing else, so it is written under one layout and read under any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

from meshwright.modes.parts import Part
from meshwright.train.checkpoint.errors import CheckpointError

StatePart = tuple[Part, str, torch.Tensor]
"""An optimizer state: the Part it belongs to, its name, and its numbers, of the Part's `size`."""

MODEL = "model/"
OPTIMIZER = "optimizer/"


@dataclass(frozen=True, eq=False)
class Box:
    """The box [offset, offset + size of `tensor`) of the whole tensor `key` of `shape`."""

    key: str
    """In the checkpoint: model/NAME, or optimizer/STATE/NAME."""
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    tensor: torch.Tensor
    """Plain, and where the numbers really are: loading writes into it."""
    copy: bool = False
    """Another box holds these numbers (a tied table): not written, but read."""

    @property
    def size(self) -> tuple[int, ...]:
        """Extent along each dim."""
        return tuple(self.tensor.shape)

    @property
    def bytes(self) -> int:
        """Of the numbers."""
        return self.tensor.numel() * self.tensor.element_size()

    @property
    def place(self) -> tuple[str, tuple[int, ...]]:
        """What tells one box from another; equal on the ranks that hold copies."""
        return self.key, self.offset

    @property
    def chunk(self) -> ChunkStorageMetadata:
        """The same in DCP's words."""
        return ChunkStorageMetadata(torch.Size(self.offset), torch.Size(self.size))

    @property
    def empty(self) -> bool:
        """Whether the rank holds nothing of the tensor."""
        return self.tensor.numel() == 0


def part_boxes(parts: Iterable[Part]) -> Iterator[Box]:
    """The parameters' boxes."""
    for part in parts:
        yield Box(MODEL + part.name, part.shape, part.offset, part.data, part.tied_copy)


def state_boxes(states: Iterable[StatePart]) -> Iterator[Box]:
    """The optimizer states' boxes. Raises CheckpointError for a state that is not shaped like its Part."""
    for part, state, tensor in states:
        if tuple(tensor.shape) != part.size:
            raise CheckpointError(
                f"The optimizer state {state!r} of {part.name} has shape {list(tensor.shape)}, "
                f"its parameter's part {list(part.size)}."
            )
        yield Box(f"{OPTIMIZER}{state}/{part.name}", part.shape, part.offset, tensor.detach(), part.tied_copy)


def volume(size: Iterable[int]) -> int:
    """Numbers in a box."""
    return math.prod(size)


def person_name(key: str) -> str:
    """A key as a person says it: the parameter's name, or the optimizer state's."""
    if key.startswith(MODEL):
        return key.removeprefix(MODEL)
    state, _, name = key.removeprefix(OPTIMIZER).partition("/")
    return f"{name} (optimizer's {state})"
