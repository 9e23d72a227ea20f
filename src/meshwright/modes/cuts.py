"""Cut: how tensor and expert parallelism cut one parameter, before data-parallel ranks shard what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import nn

from meshwright.modes.passthrough import Passthrough


@dataclass(frozen=True)
class Cut:
    """This rank's box of a parameter and what is still to be done with its gradient."""

    shape: tuple[int, ...]
    """Of the whole parameter."""
    offset: tuple[int, ...]
    size: tuple[int, ...]
    """Of this rank's box, without the padding that the module's tensor may have along dim 0."""
    ways: int = 1
    """Different boxes that the ranks of a stage hold before data-parallel sharding."""
    sum_over: tuple[str, ...] = ()
    """Axes over which the gradient is partial: each rank saw some of the tokens, or some of the heads."""
    expert: bool = False
    """Spread over expert ranks: its gradients are summed over `expert_data`, not `data`."""


Cuts = dict[str, Cut]
"""By name in the whole model."""


def whole_cut(parameter: torch.Tensor) -> Cut:
    """All of a parameter."""
    shape = tuple(parameter.shape)
    return Cut(shape, (0,) * len(shape), shape)


def matches(name: str, pattern: str) -> bool:
    """Whether a dotted name fits a pattern in which `*` stands for one level."""
    names, patterns = name.split("."), pattern.split(".")
    return len(names) == len(patterns) and all(fnmatchcase(n, p) for n, p in zip(names, patterns, strict=True))


def matching(module: nn.Module, pattern: str) -> Iterator[tuple[str, nn.Module]]:
    """The submodules whose name fits `pattern`, in order, but for those that another stage holds."""
    for name, child in module.named_modules(remove_duplicate=False):
        if name and matches(name, pattern) and not isinstance(child, Passthrough):
            yield name, child


def cut_parameter(
    module: nn.Module,
    key: str,
    name: str,
    cuts: Cuts,
    dim: int,
    start: int,
    length: int,
    *,
    padded: int = 0,
    ways: int = 1,
) -> None:
    """Leave of `module.key` the range [start, start + length) of `dim`, padded with zeros to `padded`; note the cut.

    Works on meta tensors, which have no numbers yet, as on real ones. Raises KeyError for a name without a parameter.
    """
    parameter = module._parameters[key]
    if parameter is None:
        return
    before = cuts.get(name) or whole_cut(parameter)
    kept = parameter.detach().narrow(dim, start, length)
    local = kept.clone()
    if padded > length:
        shape = list(kept.shape)
        shape[dim] = padded
        local = kept.new_zeros(shape)
        local.narrow(dim, 0, length).copy_(kept)
    module._parameters[key] = nn.Parameter(local, requires_grad=parameter.requires_grad)
    offset, size = list(before.offset), list(before.size)
    offset[dim], size[dim] = before.offset[dim] + start, length
    cuts[name] = replace(before, offset=tuple(offset), size=tuple(size), ways=before.ways * ways)


def note_partial(module: nn.Module, prefix: str, cuts: Cuts, axis: str) -> None:
    """The gradients of all of `module`'s own parameters are partial over `axis`."""
    for key, parameter in module.named_parameters(recurse=False):
        name = f"{prefix}.{key}" if prefix else key
        cut = cuts.get(name) or whole_cut(parameter)
        if axis not in cut.sum_over:
            cuts[name] = replace(cut, sum_over=(*cut.sum_over, axis))


Initialise = Callable[[str, Cut, torch.Tensor], None]
"""Fills the box of a parameter: name, cut, the tensor of shape `cut.size` to fill."""


def materialise(
    module: nn.Module, prefix: str, cuts: Cuts, device: torch.device, initialise: Initialise | None
) -> None:
    """Give `module`'s meta parameters memory and numbers on `device`; move real ones there.

    Raises ValueError for a meta parameter without `initialise`.
    """
    done: dict[int, nn.Parameter] = {}
    for path, child in module.named_modules(remove_duplicate=False):
        for key, parameter in list(child._parameters.items()):
            if parameter is None:
                continue
            if id(parameter) in done:  # tied: one parameter stays one
                child._parameters[key] = done[id(parameter)]
                continue
            name = ".".join(part for part in (prefix, path, key) if part)
            made = _made(name, parameter, cuts.get(name) or whole_cut(parameter), device, initialise)
            done[id(parameter)] = done[id(made)] = child._parameters[key] = made
    place_buffers(module, device)


def place_buffers(module: nn.Module, device: torch.device) -> None:
    """Move `module`'s buffers to `device`. Raises ValueError for one without numbers, which nothing could give it."""
    for path, child in module.named_modules():
        for key, buffer in list(child._buffers.items()):
            if buffer is not None:
                if buffer.is_meta:
                    raise ValueError(f"The buffer {path}.{key} has no numbers: build the model with real buffers.")
                child._buffers[key] = buffer.to(device)


def _made(
    name: str, parameter: nn.Parameter, cut: Cut, device: torch.device, initialise: Initialise | None
) -> nn.Parameter:
    if not parameter.is_meta:
        if parameter.device == device:
            return parameter
        return nn.Parameter(parameter.detach().to(device), requires_grad=parameter.requires_grad)
    if initialise is None:
        raise ValueError(f"The parameter {name} has no numbers and nothing says how to draw them.")
    tensor = torch.empty_like(parameter, device=device)
    box = tensor.detach()
    for dim, length in enumerate(cut.size):
        box = box.narrow(dim, 0, length)
    if tensor.shape != cut.size:
        tensor.zero_()
    initialise(name, cut, box)
    return nn.Parameter(tensor, requires_grad=parameter.requires_grad)
