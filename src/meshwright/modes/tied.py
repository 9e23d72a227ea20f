"""Tied tables: one parameter in two places, on one rank or on the first and the last stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import nn

from meshwright.cost.schedules import placement
from meshwright.modes.cuts import Cuts
from meshwright.modes.groups import new_group
from meshwright.modes.mesh import Mesh
from meshwright.modes.parts import Part
from meshwright.modes.recipe import Recipe


@dataclass
class TiedTable:
    """The copies of one table that this rank holds, and the other rank that holds one."""

    parts: list[Part]
    group: dist.ProcessGroup | None
    """The two ranks of the first and the last stage; None where both stages are on this rank."""
    source: int = 0
    """The rank of the first stage."""

    def sum_gradients(self) -> None:
        """Give every copy the sum of the copies' gradients."""
        if len(self.parts) > 1:
            # In place: such a table is the largest parameter there is.
            held = [g for part in self.parts if (g := part.gradient) is not None]
            for other in held[1:]:
                held[0].add_(other)
            for other in held[1:]:
                other.copy_(held[0])
        elif self.group is not None and (gradient := self.parts[0].gradient) is not None:
            flat = gradient.contiguous()
            dist.all_reduce(flat, group=self.group)
            if flat is not gradient:
                gradient.copy_(flat)

    def equalise(self) -> None:
        """Give every copy the numbers of the first stage's. Both ranks call it."""
        kept = next((part for part in self.parts if not part.tied_copy), None)
        for part in self.parts:
            if kept is not None and part is not kept:
                part.data.copy_(kept.data)
        if self.group is not None and self.parts[0].data.numel():
            dist.broadcast(self.parts[0].data, src=self.source, group=self.group)


def tie_again(module: nn.Module, recipe: Recipe, cuts: Cuts) -> dict[str, str]:
    """Make tied parameters one again after they were cut; returns which copies stand alone, by the name they copy.

    On a stage without the kept parameter its copy is a parameter of its own, cut as the kept one is.
    """
    alias: dict[str, str] = {}
    for copy, kept in recipe.tied:
        holder, key = _holder(module, copy)
        source, source_key = _holder(module, kept)
        if holder is None:
            continue
        if source is not None:
            holder._parameters[key] = source._parameters[source_key]
            cuts.pop(copy, None)
            continue
        alias[copy] = kept
        if copy in cuts:
            cuts[kept] = cuts[copy]
    return alias


def _holder(module: nn.Module, name: str) -> tuple[nn.Module | None, str]:
    path, _, key = name.rpartition(".")
    try:
        found = module.get_submodule(path)
    except AttributeError:
        return None, key
    return (found if key in found._parameters else None), key


def tied_tables(
    parts: Sequence[Part], recipe: Recipe, mesh: Mesh, places: Sequence[int] | None = None
) -> list[TiedTable]:
    """The tied tables of which this rank holds a copy, when a pipeline parts them. Every rank calls this."""
    layout = mesh.layout
    if layout.stages == 1 or not recipe.tied:
        return []
    places = places or placement(layout.schedule, layout.pipeline, layout.virtual_stages)
    first, last = places[0], places[-1]
    group, source = None, 0
    if first != last:
        # Each rank makes one group, those between the two stages one of their own: ranks that count their groups alike
        # name them alike, and nccl splits one communicator for all.
        stride = layout.devices // layout.pipeline
        lane, ends = dist.get_rank() % stride, (first, last)
        pair = [end * stride + lane for end in sorted(ends)]
        between = mesh.index("pipeline") not in ends
        own = [dist.get_rank()] if between else pair
        made = new_group(own, "pipeline")
        group, source = None if between else made, first * stride + lane
    found = []
    for _, kept in recipe.tied:
        mine = [part for part in parts if part.name == kept]
        if mine:
            found.append(TiedTable(mine, group, source))
    return found
