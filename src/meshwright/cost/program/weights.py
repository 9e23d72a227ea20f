"""Weights: bytes of parameters and of their gradients that one stage of a rank holds, at rest and at work.

Kept in fp32, computed in the precision's own numbers. FSDP2 gathers a block at a time, and the rest (embedding, last
norm, head) as one unit, the root; gradients travel in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.cost.program.shape import WIDE, Shape
from meshwright.cost.wire.local import Stage


@dataclass(frozen=True, slots=True)
class Weights:
    """Numbers, not bytes, of one stage."""

    all: int
    """As modules hold them, before sharding."""
    root: int
    """Outside of the blocks."""
    blocks: tuple[int, ...]
    """Each block, in order."""
    matrix: int
    """The largest tensor inside of a block."""
    table: int
    """The embedding table; 0: it is not here."""
    head: int
    """The head's matrix, or the table that is tied to it; 0: it is not here."""


def weights_of(stage: Stage, stages: int) -> Weights:
    """Of one of a rank's stages."""
    root = stage.unit("", expert=False)
    named = {p.name: p.numel for p in root}
    blocks = [sum(p.numel for expert in (False, True) for p in stage.unit(f"layers.{i}", expert)) for i in stage.layers]
    last = stage.index == stages - 1
    table = named.get("embed.tokens.weight", 0)
    return Weights(
        all=sum(p.numel for p in stage.parameters),
        root=sum(named.values()),
        blocks=tuple(blocks),
        matrix=max((p.numel for p in stage.parameters if p.place.startswith("layers.")), default=0),
        table=table if stage.index == 0 else 0,
        head=named.get("head.weight", table) if last else 0,
    )


@dataclass(frozen=True, slots=True)
class Gathered:
    """Bytes that FSDP2 holds beside the shards of one stage; all 0 without it."""

    forward: int
    """Whole parameters, from the first forward on."""
    blocks: tuple[int, ...]
    """Whole parameters of each block, where they are gathered one by one: as many as their gradients."""
    block_sums: tuple[int, ...]
    """Buffers of each block's gradients on their way to their shards."""
    root_sums: int
    """The same of the root, which the next micro-batch finds still there."""
    sums: int
    """Whole gradients that are added up until the last micro-batch."""


def gathered_of(s: Shape, w: Weights, *, adds_up: bool) -> Gathered:
    """Of one stage. `adds_up`: several micro-batches come before gradients are summed."""
    layout = s.layout
    if not layout.zero_stage:
        return Gathered(0, (), (), 0, 0)
    whole = layout.zero_stage < 3 or layout.stages > 1
    waits = layout.zero_stage == 1 or layout.stages > 1
    return Gathered(
        forward=s.element * (w.all if whole else w.root),
        blocks=() if whole else tuple(s.element * block for block in w.blocks),
        block_sums=tuple(WIDE * block for block in w.blocks),
        root_sums=WIDE * w.root,
        sums=WIDE * w.all if waits and adds_up else 0,
    )
