"""Stages: which modules a pipeline rank holds, and how a model is pruned to them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from meshwright.cost.schedules import placement
from meshwright.modes.cuts import matching
from meshwright.modes.passthrough import Passthrough
from meshwright.modes.recipe import Recipe
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout


def layers_of_stages(layers: int, layout: Layout) -> list[int]:
    """Layers of each stage in model order: by hand where the layout gives them, else balanced.

    Balanced: embedding and head count as a layer each, on the first and the last stage; the fullest stage is as small
    as can be, every stage has a layer, and among such cuts the evenest is taken. Raises LayoutError where layers do
    not suffice, or stages by hand do not place each layer once.
    """
    stages = layout.stages
    if layout.stage_layers:
        if len(layout.stage_layers) != stages or sum(layout.stage_layers) != layers:
            raise LayoutError(
                f"stages:{'-'.join(map(str, layout.stage_layers))} places {sum(layout.stage_layers)} layers in "
                f"{len(layout.stage_layers)} stages; the model has {layers} layers, the layout {stages} stages."
            )
        return list(layout.stage_layers)
    if stages > layers:
        raise LayoutError(f"{layers} layers cannot fill {stages} stages.")
    counts = [layers // stages] * stages
    # What does not divide goes where neither embedding nor head is.
    extra = layers - sum(counts)
    for index in sorted(range(stages), key=lambda i: (i in (0, stages - 1), i == stages - 1, abs(2 * i - stages + 1)))[
        :extra
    ]:
        counts[index] += 1
    # One layer less beside embedding and head, as long as that lowers the fullest stage.
    for edge in (stages - 1, 0):
        inner = [i for i in range(stages) if i not in (0, stages - 1)]
        lightest = min(inner, key=lambda i: (counts[i], abs(2 * i - stages + 1)), default=None)
        if lightest is not None and counts[edge] > 1 and counts[edge] + 1 > counts[lightest] + 1:
            counts[edge] -= 1
            counts[lightest] += 1
    return counts


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
    A copied model on the meta device costs nothing; one with numbers is copied whole first.
    """
    stage = copy.deepcopy(model)
    blocks = {name for name, _ in matching(model, recipe.blocks)}
    for pattern in recipe.order:
        for name in [name for name, _ in matching(stage, pattern)]:
            if name in keep:
                continue
            parent, _, key = name.rpartition(".")
            holder = stage.get_submodule(parent)
            if name in blocks and isinstance(holder, nn.ModuleDict):
                del holder[key]
            else:
                # A ModuleList would renumber what is left.
                holder._modules[key] = Passthrough()
    return stage


def own_stages(layout: Layout, rank: int, where: Sequence[int] | None = None) -> list[int]:
    """Indices of the stages that pipeline rank `rank` holds, in model order."""
    places = where if where is not None else placement(layout.schedule, layout.pipeline, layout.virtual_stages)
    return [stage for stage, place in enumerate(places) if place == rank]
