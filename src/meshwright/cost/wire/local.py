"""Local: what a rank's stages hold of every parameter after tensor and expert ranks have cut it, and its shard of it.

The rules are those of `modes.tensor`, `modes.experts` and `modes.tied`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.cost.parameter_shapes import ParameterShape, parameter_shapes
from meshwright.cost.stage_layers import layers_of_stages
from meshwright.cost.wire.place import Place, expert_shard_ranks, shard_ranks
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model

KV_COPIES = "kv_copies"
"""The axis of tensor ranks that hold the same key and value head."""


@dataclass(frozen=True, slots=True)
class Local:
    """A rank's box of one parameter, before data-parallel ranks shard it."""

    name: str
    place: str
    shape: tuple[int, ...]
    """As the module holds it: an uneven vocabulary is padded."""
    rows: int
    """Of dim 0 without the padding."""
    expert: bool = False
    """Spread over expert ranks."""
    partial: str = ""
    """The axis over which its gradient is partial: tensor, kv_copies or none."""

    @property
    def numel(self) -> int:
        """Numbers that the module holds."""
        return math.prod(self.shape)

    @property
    def row(self) -> int:
        """Numbers in a row of dim 0."""
        return math.prod(self.shape[1:])

    def piece(self, ranks: int) -> int:
        """Numbers that each of `ranks` ranks holds, padding along dim 0 included (FSDP2 pads every parameter)."""
        if self.across(ranks):
            return self.numel // ranks
        return -(-self.shape[0] // ranks) * self.row

    def across(self, ranks: int) -> bool:
        """Whether shards are cut along dim 1: few experts for many ranks (`modes.sharded.placement_of`)."""
        return len(self.shape) > 2 and self.shape[0] % ranks != 0 and self.shape[1] % ranks == 0

    def own(self, ranks: int, index: int) -> int:
        """Numbers without padding that rank `index` of `ranks` holds."""
        if self.across(ranks):
            return self.numel // ranks
        rows = -(-self.shape[0] // ranks)
        first = min(rows * index, self.rows)
        return min(rows, self.rows - first) * self.row


@dataclass(frozen=True, slots=True)
class Stage:
    """One of a rank's stages."""

    index: int
    layers: range
    parameters: tuple[Local, ...]

    def unit(self, place: str, expert: bool) -> list[Local]:
        """What FSDP2 gathers as one: a layer's parameters, its experts if they are spread, or ("") all the rest."""
        inside = [p for p in self.parameters if p.expert == expert]
        return [p for p in inside if (p.place if p.place.startswith("layers.") else "") == place]


def stages_of(model: Model, place: Place) -> list[Stage]:
    """The stages of a rank, in model order."""
    layout = place.layout
    shapes = parameter_shapes(model)
    counts = layers_of_stages(model.layers, layout) if layout.stages > 1 else [model.layers]
    found = []
    for index in place.stages:
        first = sum(counts[:index])
        layers = range(first, first + counts[index])
        keep = {f"layers.{i}" for i in layers}
        keep |= {"embed"} if index == 0 else set()
        keep |= {"norm", "head"} if index == layout.stages - 1 else set()
        held = [shape for shape in shapes if shape.place in keep]
        if model.tied_embeddings and "head" in keep and "embed" not in keep:
            # The last stage has its own copy of a tied table, under the name of the table that it copies.
            held += [ParameterShape(s.name, s.shape, "head", s.cut) for s in shapes if s.name == "embed.tokens.weight"]
        found.append(Stage(index, layers, tuple(_local(shape, model, place) for shape in held)))
    return found


def _local(p: ParameterShape, model: Model, place: Place) -> Local:
    layout, t = place.layout, place.layout.tensor
    shape = list(p.shape)
    if p.cut in ("features", "down_features") and layout.expert > 1:
        shape[0] //= layout.expert
        return Local(p.name, p.place, tuple(shape), shape[0], expert=True)
    if t == 1:
        return Local(p.name, p.place, p.shape, p.shape[0])
    partial = "tensor" if p.partial == "always" or (p.partial and layout.sequence_parallel) else ""
    if p.cut == "vocabulary":
        shape[0] = -(-shape[0] // t)
        rows = max(0, min(shape[0], p.shape[0] - place.tensor * shape[0]))
        return Local(p.name, p.place, tuple(shape), rows)
    if p.cut == "kv":
        shape[0] = max(shape[0] // t, model.head_dim)
        partial = KV_COPIES if model.kv_heads < t else ""
    elif p.cut in ("rows", "columns", "features", "down_features"):
        dim = {"rows": 0, "columns": 1, "features": 1, "down_features": 2}[p.cut]
        shape[dim] //= t
    return Local(p.name, p.place, tuple(shape), shape[0], partial=partial)


def own_numels(parameters: Sequence[Local], place: Place) -> list[int]:
    """Numbers of each parameter's gradient that a rank keeps: whole, or its shard."""
    if not place.layout.zero_stage:
        return [p.rows * p.row for p in parameters]
    dense, spread = shard_ranks(place.layout), expert_shard_ranks(place.layout)
    return [p.own(spread, place.expert_shard) if p.expert else p.own(dense, place.shard) for p in parameters]


def kv_copies(model: Model, layout: Layout) -> int:
    """Tensor ranks that hold the same key and value head."""
    return max(layout.tensor // model.kv_heads, 1)
