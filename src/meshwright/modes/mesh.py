"""Mesh: the ranks of a Layout as named axes, with one process group an axis.

Ranks count tensor innermost, then context, shard, replicate, pipeline outermost, as in `cost.collectives.groups`.
Expert ranks are the innermost ranks of tensor × context × data. Every axis exists, those of size 1 too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from meshwright.cost.wire.place import expert_shard_ranks
from meshwright.modes.groups import new_group
from meshwright.spec.layout import Layout


@dataclass(frozen=True)
class Mesh:
    """Process groups by axis, for this rank.

    Axes: pipeline, replicate, shard (shard × context: who shares states), context, tensor, data (replicate × shard ×
    context: where gradients are summed), stage (all ranks of one pipeline stage), expert, expert_data (the replicas of
    one expert), expert_shard (those that share its states), sequence (context × tensor: who shares a sequence).
    """

    layout: Layout
    device: torch.device
    axes: dict[str, DeviceMesh]
    """One-dimensional meshes by axis."""

    def group(self, axis: str) -> dist.ProcessGroup:
        """This rank's process group along `axis`."""
        return self.axes[axis].get_group()

    def size(self, axis: str) -> int:
        """Ranks along `axis`."""
        return self.axes[axis].size()

    def index(self, axis: str) -> int:
        """This rank's place along `axis`, from 0."""
        return self.axes[axis].get_local_rank()

    def plane(self, outer: str, inner: str) -> DeviceMesh:
        """The two-dimensional mesh (outer, inner) that hybrid sharding takes."""
        return self.axes[f"{outer}×{inner}"]


def make_mesh(layout: Layout, device: torch.device | str = "cpu") -> Mesh:
    """The axes of `layout` over all ranks of the default process group.

    Raises ValueError when the world has another size than the layout.
    """
    device = torch.device(device)
    world = dist.get_world_size()
    if world != layout.devices:
        raise ValueError(f"{layout} needs {layout.devices} ranks, the process group has {world}.")
    p, r, s, c, t = layout.pipeline, layout.replicate, layout.shard, layout.context, layout.tensor
    e = layout.expert
    stage = r * s * c * t
    shard = expert_shard_ranks(layout)
    views = (
        ((p, r, s, c, t), ("pipeline", "replicate", None, "context", "tensor")),
        ((p, r, s * c, t), (None, "replicate", "shard", None)),
        ((p, r * s * c, t), (None, "data", None)),
        ((p, r * s, c * t), (None, None, "sequence")),
        ((p, stage), (None, "stage")),
    )
    make = _Axes(device)
    ranks = torch.arange(world)
    for shape, names in views:
        make.lines(ranks.view(shape), names)
    make.plane(ranks.view(p, r, s * c, t).permute(0, 3, 1, 2), "replicate", "shard")
    if e > 1:
        spread = ranks.view(p, stage // e, e)
        make.lines(spread, (None, "expert_data", "expert"))
        copies = spread.permute(0, 2, 1).reshape(p * e, stage // e // shard, shard)
    else:
        # Experts that are not spread are split over tensor ranks like any product.
        make.lines(ranks.view(world, 1), (None, "expert"))
        make.axes["expert_data"] = make.axes["data"]
        copies = ranks.view(p, r, s * c, t).permute(0, 3, 1, 2).reshape(p * t, r, s * c)
    make.lines(copies, (None, "expert_replicate", "expert_shard"))
    make.plane(copies, "expert_replicate", "expert_shard")
    return Mesh(layout, device, make.axes)


class _Axes:
    """Makes process groups, on each rank only its own: of thousands of ranks none waits for groups of others."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank = dist.get_rank()
        self.axes: dict[str, DeviceMesh] = {}
        self._alone: dist.ProcessGroup | None = None

    def lines(self, ranks: torch.Tensor, names: tuple[str | None, ...]) -> None:
        """A one-dimensional mesh for each named dimension of `ranks`: the line that this rank lies on."""
        for dim, name in enumerate(names):
            if name is not None and name not in self.axes:
                lines = ranks.movedim(dim, -1).reshape(-1, ranks.size(dim))
                line = lines[(lines == self.rank).any(1)][0].tolist()
                group = self.group(line, name)
                self.axes[name] = DeviceMesh.from_group(group, self.device.type, mesh_dim_names=(name,))

    def plane(self, ranks: torch.Tensor, outer: str, inner: str) -> None:
        """The two-dimensional mesh of two axes, which are the last dimensions of `ranks`."""
        planes = ranks.reshape(-1, *ranks.shape[-2:])
        own = planes[(planes == self.rank).flatten(1).any(1)][0]
        groups = [self.axes[outer].get_group(), self.axes[inner].get_group()]
        self.axes[f"{outer}×{inner}"] = DeviceMesh.from_group(
            groups, self.device.type, mesh=own, mesh_dim_names=(outer, inner)
        )

    def group(self, ranks: list[int], name: str) -> dist.ProcessGroup:
        """The process group of `ranks`. All ranks make their groups in the same order."""
        if len(ranks) == 1 and self._alone is not None:
            return self._alone
        made = new_group(ranks, name)
        if len(ranks) == 1:
            self._alone = made
        return made


def add_axis(mesh: Mesh, name: str, ranks: torch.Tensor) -> None:
    """One more axis: the rows of `ranks` [groups, ranks a group]. Every rank calls it."""
    make = _Axes(mesh.device)
    make.lines(ranks, (None, name))
    mesh.axes[name] = make.axes[name]
