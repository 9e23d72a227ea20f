"""Mesh: the ranks of a Layout as named axes, with one process group an axis.

Ranks count tensor innermost, then context, shard, replicate, pipeline outermost, as in `cost.collectives.groups`.
Expert ranks are the innermost ranks of tensor × context × data. Every axis exists, those of size 1 too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

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
    shard = max(stage // e // r, 1) if e > 1 else s * c
    views = (
        ((p, r, s, c, t), ("pipeline", "replicate", None, "context", "tensor")),
        ((p, r, s * c, t), (None, "replicate", "shard", None)),
        ((p, r * s * c, t), (None, "data", None)),
        ((p, r * s, c * t), (None, None, "sequence")),
        ((p, stage), (None, "stage")),
    )
    axes: dict[str, DeviceMesh] = {}
    ranks = torch.arange(world)
    for shape, names in views:
        _add(axes, device, ranks.view(shape), names)
    _add_plane(
        axes, device, ranks.view(p, r, s * c, t).permute(0, 3, 1, 2).reshape(p * t, r, s * c), "replicate", "shard"
    )
    if e > 1:
        spread = ranks.view(p, stage // e, e)
        _add(axes, device, spread, (None, "expert_data", "expert"))
        copies = spread.permute(0, 2, 1).reshape(p * e, stage // e // shard, shard)
    else:
        # Experts that are not spread are split over tensor ranks like any product.
        dense = ranks.view(p, r * s * c, t)
        _add(axes, device, dense.view(world, 1), (None, "expert"))
        axes["expert_data"] = axes["data"]
        copies = dense.permute(0, 2, 1).reshape(p * t, r, s * c)
    _add_plane(axes, device, copies, "expert_replicate", "expert_shard")
    return Mesh(layout, device, axes)


def _add(axes: dict[str, DeviceMesh], device: torch.device, ranks: torch.Tensor, names: tuple[str | None, ...]) -> None:
    """One-dimensional meshes for the named dimensions of `ranks` that are not there yet."""
    for dim, name in enumerate(names):
        if name is not None and name not in axes:
            rows = ranks.movedim(dim, -1).reshape(-1, ranks.size(dim))
            axes[name] = DeviceMesh(device.type, rows, mesh_dim_names=("others", name))[name]


def _add_plane(axes: dict[str, DeviceMesh], device: torch.device, ranks: torch.Tensor, outer: str, inner: str) -> None:
    plane = DeviceMesh(device.type, ranks, mesh_dim_names=("others", outer, inner))
    axes[f"{outer}×{inner}"] = plane[outer, inner]
    axes.setdefault(outer, plane[outer])
    axes.setdefault(inner, plane[inner])
