"""A process group of any size in this process: its collectives move nothing, its ranks and groups are real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from meshwright.modes.mesh import Mesh, make_mesh
from meshwright.spec.notation import parse_layout


@contextmanager
def fake_mesh(layout: str, rank: int) -> Iterator[Mesh]:
    """The mesh of `layout` as `rank` makes it."""
    parsed = parse_layout(layout)
    dist.init_process_group("fake", rank=rank, world_size=parsed.devices, store=FakeStore())
    try:
        yield make_mesh(parsed)
    finally:
        dist.destroy_process_group()
        # It knows meshes by their ranks, and would give the next rank this one's place.
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
