"""Ranks: who saves and loads together, on a process group of their own that works on CPUs.

The background thread that writes a checkpoint talks on this group while training talks on others, so the two never mix
up their collectives. With no process group, one rank stands alone and every exchange is the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from meshwright.spec.errors import RequestError
from meshwright.train.checkpoint.errors import CheckpointError

T = TypeVar("T")
U = TypeVar("U")

PATIENCE = timedelta(hours=2)
"""How long a rank waits for the slowest writer. A rank that dies is noticed at once, by its closed connection."""


class Ranks:
    """All ranks of the job, or (`alone`) this process by itself. Making one for all is collective over all of them."""

    def __init__(self, *, alone: bool = False) -> None:
        together = not alone and dist.is_available() and dist.is_initialized()
        self.group: dist.ProcessGroup | None = dist.new_group(backend="gloo", timeout=PATIENCE) if together else None
        self.rank = dist.get_rank() if together else 0
        self.world = dist.get_world_size() if together else 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that decides and renames."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every rank's value, on rank 0; an empty list elsewhere."""
        if self.group is None:
            return [value]
        values: list[Any] | None = [None] * self.world if self.first else None
        dist.gather_object(value, values, dst=0, group=self.group)
        return values or []

    def exchange(self, value: T, assign: Callable[[list[T]], list[U]]) -> U:
        """Rank 0 sees every rank's value and answers each. If `assign` fails, every rank raises its CheckpointError."""
        values = self.gather(value)
        answers, message = _attempt(lambda: assign(values)) if self.first else (None, None)
        if self.group is None:
            if message is not None:
                raise CheckpointError(message)
            return answers[0]  # type: ignore[index]
        received: list[Any] = [None]
        sent = [(message, None if answers is None else answers[rank]) for rank in range(self.world)]
        dist.scatter_object_list(received, sent if self.first else None, src=0, group=self.group)
        message, answer = received[0]
        if message is not None:
            raise CheckpointError(message)
        return answer  # type: ignore[no-any-return]

    def broadcast(self, value: T) -> T:
        """Rank 0's value."""
        if self.group is None:
            return value
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self.group)
        return values[0]  # type: ignore[no-any-return]

    def everywhere(self, holds: bool) -> bool:
        """Whether it holds on all ranks. One number travels."""
        if self.group is None:
            return holds
        flag = torch.tensor(int(holds))
        dist.all_reduce(flag, dist.ReduceOp.MIN, group=self.group)
        return bool(flag)

    def agree(self, work: Callable[[], T]) -> T:
        """Do `work` on every rank. If it fails anywhere, every rank raises the lowest failed rank's CheckpointError."""
        result, message = _attempt(work)
        if not self.everywhere(message is None):
            messages = self.gather(message)
            raise CheckpointError(self.broadcast(next((m for m in messages if m is not None), "")))
        return result  # type: ignore[return-value]

    def decide(self, work: Callable[[], T]) -> T:
        """Do `work` on rank 0 and give its result to all. If it fails, every rank raises its CheckpointError."""
        result, message = self.broadcast(_attempt(work) if self.first else (None, None))
        if message is not None:
            raise CheckpointError(message)
        return result  # type: ignore[return-value]


def _attempt(work: Callable[[], T]) -> tuple[T | None, str | None]:
    try:
        return work(), None
    except (Exception, CheckpointException) as error:
        return None, describe(error)


def describe(error: BaseException) -> str:
    """One line for a person: what failed, without a traceback."""
    if isinstance(error, CheckpointException) and error.failures:
        rank, (cause, _) = sorted(error.failures.items())[0]
        return f"rank {rank}: {describe(cause)}"
    if isinstance(error, RequestError):
        return str(error)
    if isinstance(error, OSError):
        return str(error)
    return f"{type(error).__name__}: {error}"
