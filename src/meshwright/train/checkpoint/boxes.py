"""Boxes: everything that a checkpoint holds is a box of a whole, named tensor.

A parameter's Part is one, and so is this rank's share of an optimizer state. A checkpoint knows nothing else, so it is
written under one layout and read under any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

from meshwright.modes.parts import Part


class StateBox(Protocol):
    """An optimizer state's box on this rank; what `PartOptimizer.state_parts` gives."""

    @property
    def part(self) -> Part:
        """The parameter it belongs to."""

    @property
    def state(self) -> str:
        """Its name, like exp_avg."""

    @property
    def tensor(self) -> torch.Tensor:
        """The live numbers of the box."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole state, which need not be the parameter's (a step count, a factored variance)."""

    @property
    def offset(self) -> tuple[int, ...]:
        """Where the box begins in the whole state."""


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


def state_boxes(states: Iterable[StateBox]) -> Iterator[Box]:
    """The optimizer states' boxes."""
    for state in states:
        key = f"{OPTIMIZER}{state.state}/{state.part.name}"
        yield Box(key, state.shape, state.offset, state.tensor.detach(), state.part.tied_copy)


def volume(size: Iterable[int]) -> int:
    """Numbers in a box."""
    return math.prod(size)


def person_name(key: str) -> str:
    """A key as a person says it: the parameter's name, or the optimizer state's."""
    if key.startswith(MODEL):
        return key.removeprefix(MODEL)
    state, _, name = key.removeprefix(OPTIMIZER).partition("/")
    return f"{name} (optimizer's {state})"
