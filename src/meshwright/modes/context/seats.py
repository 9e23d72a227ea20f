"""Seats: who of a context group holds which tokens, and who sees whom."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from meshwright.modes import comm
from meshwright.modes.context.core import Rule
from meshwright.modes.context.pieces import Runs
from meshwright.modes.context.split import natural, runs


@dataclass(frozen=True)
class Seats:
    """One call's group and split of the sequence."""

    group: dist.ProcessGroup
    kind: str
    seq_len: int
    rule: Rule

    @property
    def rank(self) -> int:
        """This rank's place in the group."""
        return self.group.rank()

    @property
    def ranks(self) -> int:
        """Ranks of the group."""
        return self.group.size()

    def runs(self, rank: int) -> Runs:
        """The tokens of a rank."""
        return runs(self.seq_len, self.ranks, rank, self.kind)


def take_seats(
    group: dist.ProcessGroup, kind: str, q: Tensor, causal: bool, window: int, scale: float | None = None
) -> Seats:
    """The seats of a call with this rank's queries q [batch, heads, seq_len / ranks, dim]."""
    seq_len = q.shape[2] * group.size()
    return Seats(group, kind, seq_len, Rule(causal, window if 0 < window < seq_len else 0, scale))


def gather_documents(documents: Tensor | None, seats: Seats) -> Tensor | None:
    """Documents of the whole sequence [batch, seq_len] from this rank's: one all-gather, of 8 bytes a token."""
    if documents is None or seats.ranks == 1:
        return documents
    whole = comm.all_gather(documents.unsqueeze(0), seats.group)  # [ranks, batch, seq_len / ranks]
    return natural(whole, seats.kind, dim=1)
