"""Lines: the groups of ranks that are measured, each with its tier; all groups of an axis run at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from meshwright.modes.groups import new_group
from meshwright.modes.mesh import make_mesh
from meshwright.spec.collective import INTER, INTRA, Line
from meshwright.spec.layout import Layout

AXES = ("tensor", "context", "expert", "pipeline", "shard", "replicate", "data", "expert_data")
"""The axes of a layout, by what they are called where several are the same groups."""
ALL, INSIDE, BETWEEN = "all ranks", "inside a node", "between nodes"


@dataclass(frozen=True)
class Own:
    """An axis with this rank's group."""

    line: Line
    group: dist.ProcessGroup
    groups: Sequence[Sequence[int]]
    """The ranks of every group of the axis."""


def lines_of_layout(layout: Layout, nodes: Sequence[int], device: torch.device) -> list[Own]:
    """One line for each axis of `layout` that has more than one rank; axes of the same groups are one.

    Raises ValueError when the world has another size than the layout.
    """
    mesh = make_mesh(layout, device)
    found: list[Own] = []
    seen: list[list[list[int]]] = []
    for axis in AXES:
        group = mesh.group(axis)
        if group.size() == 1:
            continue
        everyone = _all_groups(dist.get_process_group_ranks(group))
        if everyone not in seen:
            seen.append(everyone)
            found.append(Own(_line(axis, everyone, nodes), group, everyone))
    return found


def lines_of_nodes(nodes: Sequence[int]) -> list[Own]:
    """All ranks; where there are several nodes also the ranks of each node, and those of the same place on every node.

    `nodes` holds the node of each rank. Every rank calls it.
    """
    members = {node: [rank for rank, its in enumerate(nodes) if its == node] for node in sorted(set(nodes))}
    world = list(range(len(nodes)))
    wanted = [(ALL, [world])]
    even = len({len(ranks) for ranks in members.values()}) == 1
    if len(members) > 1 and even and len(world) > len(members):
        wanted.append((INSIDE, list(members.values())))
        wanted.append((BETWEEN, [list(ranks) for ranks in zip(*members.values(), strict=True)]))
    found = []
    for name, groups in wanted:
        own = next(ranks for ranks in groups if dist.get_rank() in ranks)
        found.append(Own(_line(name, groups, nodes), new_group(own, name), groups))
    return found


def _all_groups(own: list[int]) -> list[list[int]]:
    """The groups of all ranks along an axis, from each rank's own."""
    everyone: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, own)
    return sorted({tuple(ranks): ranks for ranks in everyone}.values())


def _line(axis: str, groups: Sequence[Sequence[int]], nodes: Sequence[int]) -> Line:
    spanned = max(len({nodes[rank] for rank in ranks}) for ranks in groups)
    return Line(axis, len(groups[0]), len(groups), spanned, INTRA if spanned == 1 else INTER)
