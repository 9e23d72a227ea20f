"""A small model's parameters, cut into boxes by hand, and the same updates by one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from meshwright.modes.parts import Part
from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.optimizer import PartOptimizer, make_optimizer

SHAPES = {
    "embed.tokens.weight": (9, 4),
    "layers.0.attention.q.weight": (5, 7),
    "layers.0.attention.q.bias": (5,),
    "layers.0.attention_norm.weight": (3,),
    "layers.0.mlp.up.weight": (8, 4),
    "layers.0.mlp.moe.experts.up": (4, 5, 3),
    "head.weight": (1, 6),
}
CUTS = ("whole", "rows", "columns", "middle", "grid", "copies", "mixed")
STEPS = 5

Box = tuple[tuple[int, ...], tuple[int, ...]]


def initial(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The whole parameters."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for name, shape in SHAPES.items()
    }


def gradients(step: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The whole gradients of a step."""
    generator = torch.Generator().manual_seed(100 + step)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for name, shape in SHAPES.items()
    }


def boxes(cut: str, index: int, shape: tuple[int, ...], world: int) -> list[Box]:
    """What each of `world` ranks holds of the parameter number `index`."""
    if cut == "mixed":
        cut = CUTS[index % (len(CUTS) - 1)]
    pieces = {
        "whole": {},
        "columns": {len(shape) - 1: world},
        "middle": {1 if len(shape) > 2 else 0: world},
        "grid": {0: world // 2, len(shape) - 1: 2} if len(shape) > 1 else {0: world},
        "copies": {0: world // 2},
    }.get(cut, {0: world})
    held = []
    for rank in range(world):
        offset, size = [0] * len(shape), list(shape)
        for dim, count in pieces.items():
            length = math.ceil(shape[dim] / count)
            offset[dim] = min(rank % count * length, shape[dim])
            size[dim] = min(length, shape[dim] - offset[dim])
            rank //= count
        held.append((tuple(offset), tuple(size)))
    return held


def cut_of(whole: Tensor, box: Box) -> Tensor:
    """The box of a whole tensor, with its own storage."""
    offset, size = box
    return whole[tuple(slice(start, start + length) for start, length in zip(offset, size, strict=True))].clone()


def make_parts(cut: str, whole: dict[str, Tensor], group: dist.ProcessGroup | None = None) -> list[Part]:
    """This rank's Parts of the whole parameters."""
    world = dist.get_world_size(group) if dist.is_initialized() else 1
    rank = dist.get_rank(group) if dist.is_initialized() else 0
    parts = []
    for index, (name, tensor) in enumerate(whole.items()):
        held = boxes(cut, index, tuple(tensor.shape), world)
        parameter = nn.Parameter(cut_of(tensor, held[rank]))
        group = dist.group.WORLD if group is None and dist.is_initialized() else group
        parts.append(Part(name, tuple(tensor.shape), *held[rank], parameter, held.count(held[rank]), group))
    return parts


def set_gradients(parts: Iterable[Part], whole: dict[str, Tensor]) -> None:
    """Give each Part its box of the whole gradients."""
    for part in parts:
        part.parameter.grad = cut_of(whole[part.name], (part.offset, part.size))


def train(
    optimizer: PartOptimizer, parts: list[Part], steps: Iterable[int] = range(STEPS), dtype: torch.dtype = torch.float64
) -> None:
    """Some updates, each with another rate."""
    for step in steps:
        set_gradients(parts, gradients(step, dtype))
        optimizer.set_lr(optimizer.config.lr / (1 + step))
        optimizer.step()


def train_cuts(config: OptimConfig) -> dict[str, list[tuple[str, Box, Tensor]]]:
    """By cut: train on this rank's boxes; returns them."""
    return {cut: _train_cut(cut, config) for cut in CUTS}


def _train_cut(cut: str, config: OptimConfig) -> list[tuple[str, Box, Tensor]]:
    parts = make_parts(cut, initial())
    train(make_optimizer(parts, config), parts)
    return [(part.name, (part.offset, part.size), part.data.clone()) for part in parts]


def error(held: Iterable[tuple[str, Box, Tensor]], whole: dict[str, Tensor]) -> float:
    """The largest difference of any element of any box from the whole."""
    differences = [(value - cut_of(whole[name], box)).abs() for name, box, value in held]
    return max(float(difference.max()) for difference in differences if difference.numel())


def decays(name: str) -> bool:
    """Weights, and no norms and biases (written out for SHAPES)."""
    return not name.endswith("bias") and "norm" not in name


def by_torch(make: Callable[[list[dict[str, object]]], torch.optim.Optimizer], decay: float) -> dict[str, Tensor]:
    """The parameters after STEPS updates by an optimizer of torch.optim, on whole tensors in one process."""
    whole = {name: nn.Parameter(tensor) for name, tensor in initial().items()}
    groups: list[dict[str, object]] = [
        {"params": [value], "weight_decay": decay if decays(name) else 0.0} for name, value in whole.items()
    ]
    optimizer = make(groups)
    peak = optimizer.param_groups[0]["lr"]
    for step in range(STEPS):
        for name, gradient in gradients(step).items():
            whole[name].grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = peak / (1 + step)
        optimizer.step()
    return {name: value.detach() for name, value in whole.items()}
