"""parallelize: the modes applied in one fixed order. No mode knows of another.

Pipeline split → tensor and sequence → experts → context → activation checkpointing → memory and numbers → compile →
data parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from meshwright.cost.schedules import placement
from meshwright.modes.context import apply_context
from meshwright.modes.cuts import Cut, Cuts, Initialise, matches, matching, materialise, place_buffers, whole_cut
from meshwright.modes.experts import apply_experts
from meshwright.modes.mesh import Mesh
from meshwright.modes.options import Options
from meshwright.modes.parts import Part
from meshwright.modes.recipe import Recipe
from meshwright.modes.recompute import apply_recompute
from meshwright.modes.replicated import replicate
from meshwright.modes.sharded import local_box, shard
from meshwright.modes.stages import own_stages, prune, stage_names
from meshwright.modes.tensor import apply_tensor
from meshwright.modes.tied import TiedTable, tie_again, tied_tables


@dataclass
class Parallel:
    """This rank's share of a model under a layout."""

    mesh: Mesh
    options: Options
    recipe: Recipe
    indices: list[int]
    """Places in the model of this rank's stages; [0] without a pipeline."""
    stages: list[nn.Module]
    """Their modules: what holds the parameters."""
    runners: list[nn.Module]
    """The same, wrapped by what sums gradients during backward (DDP) where there is such."""
    parts: list[Part]
    """Of the parameters."""
    cuts: Cuts
    """By name in the whole model."""
    names: dict[int, str]
    """Name in the whole model by id of the module's parameter."""
    buffers: list[Part] = field(default_factory=list)
    """What the recipe names beside the parameters: checkpoints hold it, nothing trains it."""
    tied: list[TiedTable] = field(default_factory=list)
    places: list[int] = field(default_factory=lambda: [0])
    """The pipeline rank of each stage."""

    @property
    def sharded(self) -> bool:
        """Whether FSDP2 holds the parameters."""
        return self.mesh.layout.zero_stage > 0


def parallelize(
    model: nn.Module,
    mesh: Mesh,
    *,
    recipe: Recipe | None = None,
    options: Options | None = None,
    initialise: Initialise | None = None,
    places: Sequence[int] | None = None,
) -> Parallel:
    """This rank's share of `model` under `mesh.layout`.

    `model` may be on the meta device: `initialise` then fills each box of a parameter, where data-parallel ranks shard
    it that of the shard, and a device never holds more. With numbers in it, every rank cuts its share out of its copy.
    `recipe`: the model's own (`model.recipe`) unless given. `places`: the rank of each stage where a schedule table
    says so. Raises LayoutError for what does not divide.
    """
    recipe = recipe or model.recipe  # type: ignore[assignment]
    assert isinstance(recipe, Recipe)
    options = options or Options()
    layout = mesh.layout
    indices, modules = [0], [model]
    if layout.stages > 1:
        places = list(places or placement(layout.schedule, layout.pipeline, layout.virtual_stages))
        names = stage_names(model, recipe, layout)
        indices = own_stages(layout, mesh.index("pipeline"), places)
        modules = [prune(model, names[index], recipe) for index in indices]
    found = Parallel(mesh, options, recipe, indices, [], [], [], {}, {}, places=list(places or [0]))
    for module in modules:
        _share_of_stage(module, found, initialise)
    found.tied = tied_tables(found.parts, recipe, mesh, places)
    return found


def _share_of_stage(module: nn.Module, found: Parallel, initialise: Initialise | None) -> None:
    mesh, recipe, options, cuts = found.mesh, found.recipe, found.options, Cuts()
    layout = mesh.layout
    apply_tensor(module, mesh, recipe, cuts)
    apply_experts(module, mesh, recipe, cuts)
    alias = tie_again(module, recipe, cuts)
    apply_context(module, mesh, layout, recipe)
    apply_recompute(module, layout.recompute, recipe)
    blocks = dict(matching(module, recipe.blocks))
    spread = _spread_experts(module, cuts)
    unset = {name for name, parameter in module.named_parameters() if parameter.is_meta}
    if not layout.zero_stage:
        materialise(module, "", cuts, mesh.device, initialise and _by_alias(initialise, alias))
    place_buffers(module, mesh.device)
    if options.compile:
        for block in blocks.values():
            block.compile()
    named = [(alias.get(name, name), name) for name, _ in module.named_parameters()]
    runner = module
    if layout.zero_stage:
        shard(module, mesh, options, list(blocks.values()), [module.get_submodule(name) for name in spread])
    elif layout.pipeline == 1:
        apart = [name for name, _ in module.named_parameters() if (cut := cuts.get(name)) and cut.expert]
        runner = replicate(module, mesh, options, apart)
    parameters = dict(module.named_parameters())
    for whole, local in named:
        cut = cuts.get(whole) or whole_cut(parameters[local])
        part = _part(whole, parameters[local], cut, mesh, whole != local)
        if layout.zero_stage and local in unset:
            _fill(part, initialise)
        found.parts.append(part)
        found.names[id(parameters[local])] = whole
    found.buffers += _buffers(module, mesh, recipe)
    found.cuts |= cuts
    found.stages.append(module)
    found.runners.append(runner)


def _buffers(module: nn.Module, mesh: Mesh, recipe: Recipe) -> list[Part]:
    """The buffers that checkpoints hold, each whole on every rank of the stage."""
    group = mesh.group("stage")
    named = [(n, b) for n, b in module.named_buffers() if any(matches(n, pattern) for pattern in recipe.buffers)]
    return [
        Part(name, tuple(b.shape), (0,) * b.dim(), tuple(b.shape), b, mesh.size("stage"), group) for name, b in named
    ]


def _spread_experts(module: nn.Module, cuts: Cuts) -> list[str]:
    """Modules whose parameters are spread over expert ranks: other data-parallel ranks share them."""
    return list(dict.fromkeys(name.rpartition(".")[0] for name, cut in cuts.items() if cut.expert))


def _fill(part: Part, initialise: Initialise | None) -> None:
    if initialise is None:
        raise ValueError(f"The parameter {part.name} has no numbers and nothing says how to draw them.")
    initialise(part.name, Cut(part.shape, part.offset, part.size), part.data)


def _by_alias(initialise: Initialise, alias: dict[str, str]) -> Initialise:
    return lambda name, cut, tensor: initialise(alias.get(name, name), cut, tensor)


def _part(name: str, parameter: nn.Parameter, cut: Cut, mesh: Mesh, copy: bool) -> Part:
    """Where this rank's numbers of `parameter` lie in the whole."""
    offset, size, shards = list(cut.offset), list(cut.size), 1
    if mesh.layout.zero_stage:
        shards = mesh.size("expert_shard" if cut.expert else "shard")
        starts, lengths = local_box(parameter)
        for dim, (first, length) in enumerate(zip(starts, lengths, strict=True)):
            real = cut.size[dim]  # of this rank's box; more is padding
            offset[dim] = cut.offset[dim] + min(first, real)
            size[dim] = max(0, min(first + length, real) - first)
    return Part(
        name=name,
        shape=cut.shape,
        offset=tuple(offset),
        size=tuple(size),
        parameter=parameter,
        copies=mesh.size("stage") // (cut.ways * shards),
        group=mesh.group("stage"),
        tied_copy=copy,
    )
