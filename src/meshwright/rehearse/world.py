"""World: one rank of a process group of any size, whose collectives come back at once and carry nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def fake_world(rank: int, size: int) -> Iterator[None]:
    """Be `rank` of `size` ranks. Raises RuntimeError inside of another process group."""
    # Importing it is what tells PyTorch of the backend "fake".
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise RuntimeError("A rehearsal cannot run inside of a process group.")
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
