"""Parts cut by hand, as the modes would cut them, of a small model whose numbers are all different."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from meshwright.modes.parts import Part

SHAPES = {
    "embed.tokens.weight": (7, 6),
    "layers.0.attention.q.weight": (6, 6),
    "layers.0.moe.experts.gate": (3, 5, 4),
    "layers.1.mlp.up.weight": (9, 6),
    "norm.weight": (6,),
    "scale": (),
}
STATES = ("exp_avg", "exp_avg_sq")

Range = tuple[int, int]


@dataclass(frozen=True)
class State:
    """A box of an optimizer state that is cut like its parameter, here."""

    part: Part
    state: str
    tensor: torch.Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """What one rank holds: its parts and their optimizer states."""

    parts: list[Part]
    states: list[State]


def whole(name: str, state: str = "", shift: float = 0.0) -> torch.Tensor:
    """All numbers of a parameter or of one of its states, none of which occurs twice in the model."""
    start = 1000.0 * (1 + list(SHAPES).index(name)) + 100_000.0 * (1 + STATES.index(state) if state else 0)
    shape = SHAPES[name]
    return (torch.arange(math.prod(shape), dtype=torch.float64) + start + shift).view(shape) / 7


def chunk(length: int, ways: int, index: int) -> Range:
    """What torch.chunk gives the index-th of `ways`: pieces of equal length, rounded up; the last may be empty."""
    piece = -(-length // ways)
    start = min(index * piece, length)
    return start, min(start + piece, length)


def rows(shape: tuple[int, ...], rank: int, world: int) -> list[Range]:
    return [chunk(n, world, rank) if dim == 0 else (0, n) for dim, n in enumerate(shape)]


def columns(shape: tuple[int, ...], rank: int, world: int) -> list[Range]:
    return [chunk(n, world, rank) if dim == len(shape) - 1 else (0, n) for dim, n in enumerate(shape)]


def grid(shape: tuple[int, ...], rank: int, world: int) -> list[Range]:
    """Two-dimensional boxes: half of the columns, and of these a share of the rows."""
    if len(shape) < 2:
        return rows(shape, rank // 2, world // 2)  # two copies of each piece
    return [
        chunk(n, world // 2, rank // 2) if dim == 0 else chunk(n, 2, rank % 2) if dim == len(shape) - 1 else (0, n)
        for dim, n in enumerate(shape)
    ]


def everything(shape: tuple[int, ...], rank: int, world: int) -> list[Range]:
    return [(0, n) for n in shape]


CUTS: dict[str, Callable[[tuple[int, ...], int, int], list[Range]]] = {
    "rows": rows,
    "columns": columns,
    "grid": grid,
    "whole": everything,
    "stages": everything,
}


def held(cut: str, *, fill: bool, shift: float = 0.0, dtype: torch.dtype = torch.float64) -> Held:
    """This rank's parts under a cut of CUTS, with the model's numbers, or (`fill` false) with NaN to be loaded over."""
    together = dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    held = Held([], [])
    for number, (name, shape) in enumerate(SHAPES.items()):
        ranges = CUTS[cut](shape, rank, world)
        tied = False
        if cut == "stages" and number % world != rank:
            tied = name == "embed.tokens.weight" and rank == world - 1
            if not tied:
                continue
            ranges = rows(shape, 1, 2)  # a box that no rank holds as the parameter's own
        where = tuple(slice(start, stop) for start, stop in ranges)

        def piece(numbers: torch.Tensor, where: tuple[slice, ...] = where) -> torch.Tensor:
            cut_out = numbers[where].clone()
            return (cut_out if fill else torch.full_like(cut_out, float("nan"))).to(dtype)

        part = Part(
            name=name,
            shape=shape,
            offset=tuple(start for start, _ in ranges),
            size=tuple(stop - start for start, stop in ranges),
            parameter=nn.Parameter(piece(whole(name, shift=shift))),
            copies=1 if cut == "stages" else sum(CUTS[cut](shape, r, world) == ranges for r in range(world)),
            group=dist.group.WORLD if together else None,  # type: ignore[arg-type]
            tied_copy=tied,
        )
        held.parts.append(part)
        held.states.extend(
            State(part, state, piece(whole(name, state, shift)), part.shape, part.offset) for state in STATES
        )
    return held


def differences(held: Held, shift: float = 0.0, *, states: bool = True) -> list[str]:
    """Where this rank's numbers are not exactly those of the model."""
    wrong = []
    numbers_of = [(part, "", part.data) for part in held.parts]
    numbers_of += [(s.part, s.state, s.tensor) for s in held.states] if states else []
    for part, state, numbers in numbers_of:
        where = tuple(slice(start, start + n) for start, n in zip(part.offset, part.size, strict=True))
        if not torch.equal(numbers, whole(part.name, state, shift)[where]):
            wrong.append(f"{part.name} {state}")
    return wrong
