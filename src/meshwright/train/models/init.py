"""Initialisation that is the same under every layout: any box of a parameter equals that box of the whole draw.

Normal numbers are drawn in float32 on the CPU, in blocks of rows, each block from a generator of its own seeded by
(seed, the parameter's name, the block). A rank draws only the blocks that its box touches and casts them at the end.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from meshwright.train.models.decoder import Decoder

BLOCK = 2**18
"""Numbers in a block, about: whole rows, and at least one."""


@dataclass(frozen=True, slots=True)
class InitRule:
    """How one parameter starts."""

    kind: str
    """normal, ones or zeros."""
    std: float = 0.0


def init_rules(decoder: Decoder) -> Callable[[str], InitRule]:
    """The rule of each parameter by its name: the same on every pipeline stage.

    Norms start at one, biases at zero, everything else is normal with std 0.02 (the configuration's
    `initializer_range`). What is added to the residual stream (o, down) is smaller by √(2 · layers), as in GPT-2
    (Radford et al. 2019, section 2.3).
    """
    a = decoder.architecture
    residual = a.init_std / float(2 * a.model.layers) ** 0.5

    def rule(name: str) -> InitRule:
        *path, last = name.split(".")
        owner = path[-1] if path else ""
        if last == "bias":
            return InitRule("zeros")
        if owner.endswith("norm"):
            return InitRule("ones")
        adds = owner in ("o", "down") or (owner == "experts" and last == "down")
        return InitRule("normal", residual if adds else a.init_std)

    return rule


def init_part(
    name: str,
    shape: Sequence[int],
    offset: Sequence[int],
    size: Sequence[int],
    out: Tensor,
    seed: int,
    rule: InitRule,
) -> None:
    """Fill `out` (of shape `size`, any dtype and device) with the box [offset, offset + size) of parameter `name`.

    `shape` is the whole parameter's. The numbers depend on nothing but seed, name, shape and the place in the whole.
    """
    if tuple(out.shape) != tuple(size):
        raise ValueError(f"{name}: the tensor is {tuple(out.shape)}, the box {tuple(size)}.")
    with torch.no_grad():
        if rule.kind != "normal":
            out.fill_(1.0 if rule.kind == "ones" else 0.0)
            return
        if 0 in size:
            return
        if len(shape) < 2:
            shape, offset, size, out = (*shape, 1), (*offset, 0), (*size, 1), out.unsqueeze(-1)
        # Leading dimensions (experts) index matrices, which are drawn each by itself.
        for matrix in itertools.product(*(range(o, o + n) for o, n in zip(offset[:-2], size[:-2], strict=True))):
            target = out
            for index, first in zip(matrix, offset, strict=False):
                target = target[index - first]
            _fill(target, f"{seed}/{name}/{matrix}", shape[-2:], offset[-2:], rule.std)


def _fill(out: Tensor, key: str, shape: Sequence[int], offset: Sequence[int], std: float) -> None:
    """Fill `out`, whose first number lies at `offset` of a matrix of this shape, block by block."""
    rows, columns = shape
    height = max(1, BLOCK // columns)
    first, last = offset[0], offset[0] + out.shape[0]
    for block in range(first // height, -(-last // height)):
        start = block * height
        drawn = torch.empty(min(height, rows - start), columns, dtype=torch.float32)
        drawn.normal_(0.0, std, generator=_generator(f"{key}/{block}"))
        low, high = max(first, start), min(last, start + height)
        box = drawn[low - start : high - start, offset[1] : offset[1] + out.shape[1]]
        out[low - first : high - first].copy_(box)


def _generator(key: str) -> torch.Generator:
    digest = hashlib.sha256(key.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def init_module(decoder: Decoder, seed: int) -> None:
    """Fill a whole model (or a stage) that one process holds, not sharded."""
    rule = init_rules(decoder)
    for name, parameter in decoder.named_parameters():
        shape = tuple(parameter.shape)
        init_part(name, shape, (0,) * len(shape), shape, parameter.data, seed, rule(name))
