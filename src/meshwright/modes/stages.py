"""Stages: which modules a pipeline rank holds, and how a model is pruned to them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from meshwright.cost.schedules import placement
from meshwright.cost.stage_layers import layers_of_stages
from meshwright.modes.cuts import matching
from meshwright.modes.passthrough import Passthrough
from meshwright.modes.recipe import Recipe
from meshwright.spec.layout import Layout


def stage_names(model: nn.Module, recipe: Recipe, layout: Layout) -> list[list[str]]:
    """Names of the modules of each stage, in the order of the forward pass."""
    units: list[str] = []
    for pattern in recipe.order:
        units += [name for name, _ in matching(model, pattern)]
    blocks = {name for name, _ in matching(model, recipe.blocks)}
    first, last = units.index(next(u for u in units if u in blocks)), max(i for i, u in enumerate(units) if u in blocks)
    layers = units[first : last + 1]
    counts = layers_of_stages(len(layers), layout)
    found, start = [], 0
    for count in counts:
        found.append(layers[start : start + count])
        start += count
    found[0] = units[:first] + found[0]
    found[-1] = found[-1] + units[last + 1 :]
    return found


def prune(model: nn.Module, keep: Sequence[str], recipe: Recipe) -> nn.Module:
    """A copy of `model` that has of the recipe's modules only those named in `keep`.

    Blocks that are left out are deleted from their container, whose other keys stay; other modules become Passthrough.
    Nothing of what is left out is copied.
    """
    # Of a fake tensor that is no parameter, deepcopy itself would ask where its memory is.
    memo: dict[int, object] = {id(buffer): buffer.clone() for buffer in model.buffers()}
    blocks = {name for name, _ in matching(model, recipe.blocks)}
    left_out = [(n, m) for pattern in recipe.order for n, m in matching(model, pattern) if n not in keep]
    # Where deepcopy meets one of these, it takes what stands here for it.
    memo |= {id(module): Passthrough() for _, module in left_out}
    stage = copy.deepcopy(model, memo)
    for name, _ in left_out:
        parent, _, key = name.rpartition(".")
        holder = stage.get_submodule(parent)
        if name in blocks and isinstance(holder, nn.ModuleDict):
            del holder[key]  # A ModuleList would renumber what is left.
    return stage


def own_stages(layout: Layout, rank: int, where: Sequence[int] | None = None) -> list[int]:
    """Indices of the stages that pipeline rank `rank` holds, in model order."""
    places = where if where is not None else placement(layout.schedule, layout.pipeline, layout.virtual_stages)
    return [stage for stage, place in enumerate(places) if place == rank]
