"""Leaf: the plain tensor that an optimizer updates for one Part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from meshwright.modes.parts import Part


@dataclass(eq=False)
class Leaf:
    """A Part as an optimizer sees it. Call its methods without gradient mode.

    As a rule `tensor` shares the Part's storage: no DTensor is dispatched in a step, and nothing is copied. A master
    copy has its own storage, in another dtype or on the host; `publish` then copies it to the Part after an update.
    """

    part: Part
    tensor: nn.Parameter
    master: bool

    def gradient(self, place: tuple[int, ...] = ()) -> Tensor | None:
        """The Part's gradient (at `place` of a stack), with the device and dtype of `tensor`; None before backward."""
        gradient = self.part.gradient
        if gradient is None:
            return None
        # Fused kernels walk the memory of both tensors side by side.
        return select(gradient, place).to(self.tensor.device, self.tensor.dtype).contiguous()

    def follow(self) -> None:
        """Share the Part's storage again where it has moved since: FSDP2 pins offloaded shards at the first forward."""
        parameter = self.part.parameter
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        if not self.master and local.untyped_storage()._cdata != self.tensor.untyped_storage()._cdata:
            self.tensor.data = self.part.data

    def publish(self) -> None:
        """Copy a master copy to the Part."""
        if self.master:
            self.part.data.copy_(self.tensor, non_blocking=True)


def make_leaf(part: Part, *, master: torch.dtype | None = None, host: bool = False) -> Leaf:
    """The Leaf of `part`; a master copy where `master` is another dtype, or `host` and the Part is elsewhere."""
    data = part.data
    device = torch.device("cpu") if host else data.device
    dtype = master or data.dtype
    if (device.type, dtype) == (data.device.type, data.dtype):
        return Leaf(part, nn.Parameter(data), master=False)
    copy = data.to(device, dtype)
    if data.is_cuda and device.type == "cpu":
        copy = copy.pin_memory()
    return Leaf(part, nn.Parameter(copy), master=True)


def select(stack: Tensor, place: tuple[int, ...]) -> Tensor:
    """What lies at `place` of the first dimensions, as a view."""
    for index in place:
        stack = stack.select(0, index)
    return stack


def by_group(leaves: Iterable[Leaf]) -> list[tuple[dist.ProcessGroup, list[Leaf]]]:
    """Leaves by the group that shares their parameters, in an order that all ranks of a group agree on."""
    groups: dict[dist.ProcessGroup, list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf.part.group, []).append(leaf)
    return list(groups.items())
