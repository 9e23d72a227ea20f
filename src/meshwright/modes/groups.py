"""Process groups of some ranks, with the time limit of the group of all: PyTorch would take its backend's default."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist


def new_group(ranks: Sequence[int], name: str) -> dist.ProcessGroup:
    """The group of `ranks`, which this one is among; only they call it, in the same order. `name` describes it."""
    made = dist.new_group(list(ranks), timeout=limit(), use_local_synchronization=True, group_desc=name)
    assert isinstance(made, dist.ProcessGroup)
    return made


def limit() -> timedelta | None:
    """How long a collective of the default group may take; None: its backend does not say (a fake one)."""
    world = dist.group.WORLD
    if world is None:
        return None
    for device in world._device_types:
        found = getattr(getattr(world._get_backend(device), "options", None), "_timeout", None)
        if isinstance(found, timedelta):
            return found
    return None
