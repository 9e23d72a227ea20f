"""Messages: the tensors of one operation at one size, how it is run, and what must have arrived.

Every number of a message depends on the rank that sends it and on its place, and sums of them are exact in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from meshwright.bench.comms.operations import ELEMENT_BYTES
from meshwright.spec.collective import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, OPERATIONS, REDUCE_SCATTER, SEND

PERIOD = 251
"""A prime: no power of two of a rank's share has the same numbers twice."""
STRIDE = 257
"""By which the numbers of two ranks differ."""


@dataclass(frozen=True)
class Message:
    """One operation at one size on this rank: `run` does it once, `arrived` says what is wrong with the outcome."""

    operation: str
    group: dist.ProcessGroup
    sent: torch.Tensor
    """What this rank gives."""
    received: torch.Tensor
    """Where the outcome lies; an all-reduce and a broadcast work in place."""

    def fill(self) -> None:
        """Put this rank's numbers in, and none where others' will arrive."""
        rank = self.group.rank()
        self.received.fill_(-1.0)
        self.sent.copy_(pattern(rank, self.sent.numel(), self.sent.device))
        if self.operation == BROADCAST and rank:
            self.sent.fill_(-1.0)

    def rest(self) -> None:
        """Zeros, which a sum in place leaves as they are however often it runs."""
        if self.operation == ALL_REDUCE:
            self.sent.zero_()

    def run(self) -> None:
        """Do it once. On a GPU it is only launched."""
        _RUN[self.operation](self)

    def arrived(self) -> str:
        """What is wrong with what arrived after `fill` and `run`; "" where nothing is."""
        expected = expected_of(
            self.operation, self.group.rank(), self.group.size(), self.received.numel(), self.received.device
        )
        wrong = torch.nonzero(self.received != expected)
        if not len(wrong):
            return ""
        at = int(wrong[0])
        return (
            f"{self.operation} of {self.received.numel() * ELEMENT_BYTES:,} bytes gave {self.received[at].item():g} at "
            f"element {at:,} where {expected[at].item():g} is right ({len(wrong):,} elements are wrong)"
        )


def make_message(operation: str, size: int, group: dist.ProcessGroup, device: torch.device) -> Message:
    """The tensors for `size` bytes by nccl-tests' convention. Raises ValueError for an unknown operation."""
    if operation not in OPERATIONS:
        raise ValueError(f"unknown operation {operation!r}")
    whole = size // ELEMENT_BYTES
    part = whole // group.size()
    sent = torch.zeros(part if operation == ALL_GATHER else whole, device=device)
    if operation in (ALL_REDUCE, BROADCAST):
        return Message(operation, group, sent, sent)
    return Message(operation, group, sent, torch.zeros(part if operation == REDUCE_SCATTER else whole, device=device))


def pattern(rank: int, count: int, device: torch.device, start: int = 0) -> torch.Tensor:
    """The numbers `start` to `start + count` of those that `rank` sends: whole, so that sums are exact."""
    return (torch.arange(start, start + count, device=device) % PERIOD + STRIDE * rank).to(torch.float32)


def expected_of(operation: str, rank: int, ranks: int, count: int, device: torch.device) -> torch.Tensor:
    """What `rank` of `ranks` must hold afterwards, `count` elements of it."""
    if operation == ALL_REDUCE:
        return _sum(ranks, count, device)
    if operation == REDUCE_SCATTER:
        return _sum(ranks, count, device, rank * count)
    if operation == BROADCAST:
        return pattern(0, count, device)
    if operation == SEND:
        return pattern((rank - 1) % ranks, count, device)
    share = count // ranks
    first = rank * share if operation == ALL_TO_ALL else 0
    return torch.cat([pattern(other, share, device, first) for other in range(ranks)])


def _sum(ranks: int, count: int, device: torch.device, start: int = 0) -> torch.Tensor:
    return pattern(0, count, device, start) * ranks + STRIDE * ranks * (ranks - 1) // 2


def _ring(message: Message) -> None:
    group = message.group
    rank, ranks = group.rank(), group.size()
    calls = [
        dist.P2POp(dist.isend, message.sent, group=group, group_peer=(rank + 1) % ranks),
        dist.P2POp(dist.irecv, message.received, group=group, group_peer=(rank - 1) % ranks),
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()


_RUN: dict[str, Callable[[Message], None]] = {
    ALL_REDUCE: lambda m: _done(dist.all_reduce(m.sent, group=m.group)),
    ALL_GATHER: lambda m: _done(dist.all_gather_single(m.received, m.sent, group=m.group)),
    REDUCE_SCATTER: lambda m: _done(dist.reduce_scatter_single(m.received, m.sent, group=m.group)),
    ALL_TO_ALL: lambda m: _done(dist.all_to_all_single(m.received, m.sent, group=m.group)),
    BROADCAST: lambda m: _done(dist.broadcast(m.sent, group=m.group, group_src=0)),
    SEND: _ring,
}


def _done(work: object) -> None:
    """A call without `async_op` has nothing to wait for."""
