"""AxisNames: which axis of a mesh a process group is."""

from __future__ import annotations

import torch.distributed as dist

from meshwright.modes.mesh import Mesh

PREFERENCE = (
    "tensor",
    "context",
    "expert",
    "pipeline",
    "shard",
    "data",
    "replicate",
    "kv_copies",
    "expert_shard",
    "expert_data",
    "expert_replicate",
    "sequence",
    "stage",
)
"""Of several axes that are one group, the first is the group's name."""
WORLD = "world"


class AxisNames:
    """The axis of a process group, by these rules; the first that says something counts.

    1. The axis of the mesh that has this very group; the first in PREFERENCE where several have it.
    2. `world` for the default group and for a group of all ranks.
    3. The axis with the same ranks, or else the smallest with more (the first and the last stage, which share a tied
       table: `pipeline`).
    4. Without a mesh: how the group is described, which is how `make_mesh` and DeviceMesh name their axes. Otherwise
       `world`, of which every group is a part.
    """

    def __init__(self, mesh: Mesh | None = None) -> None:
        self._mesh = mesh
        self._known: dict[str, str] = {}

    def of(self, group: dist.ProcessGroup) -> str:
        """The name of `group`'s axis."""
        name = group.group_name
        if name not in self._known:
            self._known[name] = self._find(group)
        return self._known[name]

    def _find(self, group: dist.ProcessGroup) -> str:
        axes = self._axes()
        for axis, own in axes.items():
            if own.group_name == group.group_name and own.size() > 1:
                return axis
        if group.size() == dist.get_world_size():
            return WORLD
        if not axes:
            described = group.group_desc.removeprefix("mesh_")
            return described if described in PREFERENCE or described != group.group_desc else WORLD
        ranks = set(dist.get_process_group_ranks(group))
        wider = [(own.size(), axis) for axis, own in axes.items() if ranks <= set(dist.get_process_group_ranks(own))]
        return min(wider, key=lambda one: one[0])[1] if wider else WORLD

    def _axes(self) -> dict[str, dist.ProcessGroup]:
        """Groups by axis, in the order of PREFERENCE; axes of two dimensions have none."""
        if self._mesh is None:
            return {}
        axes = self._mesh.axes
        order = [*(axis for axis in PREFERENCE if axis in axes), *(axis for axis in axes if axis not in PREFERENCE)]
        return {axis: axes[axis].get_group() for axis in order if axes[axis].ndim == 1}
