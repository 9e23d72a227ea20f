"""The axes of a mesh: which ranks they join, on up to 32 ranks of a fake process group."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from meshwright.cost.collectives import groups
from meshwright.modes.mesh import Mesh, make_mesh
from meshwright.spec.columns import columns_of
from meshwright.spec.notation import parse_layout
from tests.modes.fake import fake_mesh

FIVE_AXES = "hsdp2x2 cp2 tp2 pp2:1f1b ep4"


def members(mesh: Mesh, axis: str) -> tuple[int, ...]:
    return tuple(dist.get_process_group_ranks(mesh.group(axis)))


def lines(layout: str) -> dict[str, set[tuple[int, ...]]]:
    """By axis: every group that some rank is in."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for rank in range(parse_layout(layout).devices):
        with fake_mesh(layout, rank) as mesh:
            for axis in mesh.axes:
                if "×" not in axis:
                    own = members(mesh, axis)
                    assert rank in own
                    assert mesh.size(axis) == len(own)
                    assert own[mesh.index(axis)] == rank
                    found.setdefault(axis, set()).add(own)
    return found


@pytest.mark.parametrize(
    "layout", [FIVE_AXES, "ddp4 tp2 pp2:gpipe", "fsdp2 cp2 tp4 pp2:1f1b", "hsdp2x4 ep4", "cp4 tp2"]
)
def test_axes_have_the_sizes_and_strides_that_costs_are_computed_with(layout: str) -> None:
    found = lines(layout)
    for axis, group in groups(columns_of(parse_layout(layout))).items():
        size, stride = int(group.size), int(group.stride)
        for own in found[axis]:
            assert own == tuple(own[0] + i * stride for i in range(size)), axis
        # Each rank is in one group.
        assert sorted(rank for own in found[axis] for rank in own) == list(range(parse_layout(layout).devices))


def test_five_axes_on_32_ranks_are_as_counted_by_hand() -> None:
    with fake_mesh(FIVE_AXES, 21) as mesh:  # 21 = 16·1 + 8·0 + 4·1 + 2·0 + 1: pipeline, replica, shard, context, tensor
        assert members(mesh, "pipeline") == (5, 21)
        assert members(mesh, "replicate") == (21, 29)
        assert members(mesh, "shard") == (17, 19, 21, 23)  # with the context ranks, tensor 1
        assert members(mesh, "context") == (21, 23)
        assert members(mesh, "tensor") == (20, 21)
        assert members(mesh, "data") == (17, 19, 21, 23, 25, 27, 29, 31)
        assert members(mesh, "stage") == tuple(range(16, 32))
        assert members(mesh, "sequence") == (20, 21, 22, 23)
        assert members(mesh, "expert") == (20, 21, 22, 23)
        assert members(mesh, "expert_data") == (17, 21, 25, 29)
        assert members(mesh, "expert_shard") == (17, 21)
        assert members(mesh, "expert_replicate") == (21, 29)
        assert mesh.plane("replicate", "shard").mesh.tolist() == [[17, 19, 21, 23], [25, 27, 29, 31]]
        assert mesh.plane("expert_replicate", "expert_shard").mesh.tolist() == [[17, 21], [25, 29]]


@pytest.mark.parametrize(
    "layout", ["hsdp2x5 ep2", "hsdp2x7 ep2", "hsdp3x4 ep2", "hsdp2x2 ep4", "hsdp4x1 ep2", "hsdp2x3 ep2"]
)
def test_replicas_of_an_expert_lie_on_a_plane_whatever_their_number(layout: str) -> None:
    """5 replicas of an expert are no 2 × 2.5: they share nothing, or all."""
    found = lines(layout)
    parsed = parse_layout(layout)
    for shard in found["expert_shard"]:
        assert any(set(shard) <= set(data) for data in found["expert_data"])
    sizes = {len(shard) for shard in found["expert_shard"]}, {len(one) for one in found["expert_replicate"]}
    assert all(len(one) == 1 for one in sizes)
    (shards,), (replicas,) = sizes
    assert shards * replicas * parsed.expert == parsed.devices


def test_a_layout_without_axes_has_them_all() -> None:
    found = lines("ddp1")
    assert {
        "pipeline",
        "replicate",
        "shard",
        "context",
        "tensor",
        "data",
        "stage",
        "expert",
        "sequence",
    } <= found.keys()
    assert all(own == {(0,)} for own in found.values())


def test_a_world_of_another_size_is_refused() -> None:
    dist.init_process_group("fake", rank=0, world_size=3, store=FakeStore())
    try:
        with pytest.raises(ValueError, match="needs 4 ranks, the process group has 3"):
            make_mesh(parse_layout("tp4"))
    finally:
        dist.destroy_process_group()
