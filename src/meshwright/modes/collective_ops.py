"""PyTorch's collective operators: what each call means in bytes.

Every collective of PyTorch, whoever issues it (DDP's C++ reducer, FSDP2, functional collectives, pipeline schedules,
`torch.distributed`), ends in one operator `c10d::*` of the dispatcher. Here is what its arguments say.

Bytes are of the whole tensor (nccl-tests' convention, PERFORMANCE.md): what an all-gather ends with, what a
reduce-scatter starts from. Bytes sent are those of the algorithms that reach the lower bound (Thakur et al. 2005;
NCCL's rings): all-reduce 2(n-1)/n · size, all-gather and reduce-scatter (n-1)/n · size, all-to-all what is for others,
broadcast all of it on the root (a ring passes it on once a rank, a tree spreads the same sum unevenly).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Operator:
    """How one operator `c10d::<name>` is read."""

    collective: str
    group: int
    """Which of its arguments is the process group."""
    read: Callable[[tuple[Any, ...], int, int], tuple[int, int]]
    """(arguments, rank in the group, ranks) → bytes of the whole tensor, and `ranks` times the bytes this rank sends:
    a whole number, where a ring's share of an uneven tensor is none."""


def _bytes(nested: Any) -> int:
    """Bytes of a tensor, or of all tensors in lists of lists."""
    return nested.nbytes if isinstance(nested, torch.Tensor) else sum(map(_bytes, nested))


def _all_reduce(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    size = _bytes(arguments[0])
    return size, 2 * (ranks - 1) * size


def _all_gather(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    size = _bytes(arguments[0])
    return size, (ranks - 1) * size


def _reduce_scatter(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    size = _bytes(arguments[1])
    return size, (ranks - 1) * size


def _all_to_all_split(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    """One tensor [rows, …] whose rows are split over the ranks: evenly, or as argument 4 says."""
    source, splits = arguments[1], arguments[4]
    size = _bytes(source)
    if not splits:
        return size, (ranks - 1) * size
    rows = sum(splits)
    return size, ranks * (size // rows) * (rows - splits[rank]) if rows else 0


def _all_to_all_lists(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    size = _bytes(arguments[1])
    return size, ranks * (size - _bytes(arguments[1][rank]))


def _broadcast(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    size = _bytes(arguments[0])
    return size, ranks * size if rank == arguments[2] else 0


def _reduce(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    size = _bytes(arguments[0])
    return size, ranks * size if rank != arguments[3] else 0


def _gather(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    own = _bytes(arguments[1])
    return ranks * own, ranks * own if rank != arguments[3] else 0


def _scatter(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    own = _bytes(arguments[0])
    return ranks * own, ranks * (ranks - 1) * own if rank == arguments[3] else 0


def _send(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    size = _bytes(arguments[0])
    return size, ranks * size


def _receive(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    return _bytes(arguments[0]), 0


def _barrier(arguments: tuple[Any, ...], rank: int, ranks: int) -> tuple[int, int]:
    return 0, 0


OPERATORS = {
    "allreduce_": Operator("all-reduce", 1, _all_reduce),
    "allreduce_coalesced_": Operator("all-reduce", 1, _all_reduce),
    "allgather_": Operator("all-gather", 2, _all_gather),
    "_allgather_base_": Operator("all-gather", 2, _all_gather),
    "allgather_coalesced_": Operator("all-gather", 2, _all_gather),
    "allgather_into_tensor_coalesced_": Operator("all-gather", 2, _all_gather),
    "reduce_scatter_": Operator("reduce-scatter", 2, _reduce_scatter),
    "_reduce_scatter_base_": Operator("reduce-scatter", 2, _reduce_scatter),
    "reduce_scatter_tensor_coalesced_": Operator("reduce-scatter", 2, _reduce_scatter),
    "alltoall_": Operator("all-to-all", 2, _all_to_all_lists),
    "alltoall_base_": Operator("all-to-all", 2, _all_to_all_split),
    "broadcast_": Operator("broadcast", 1, _broadcast),
    "reduce_": Operator("reduce", 1, _reduce),
    "gather_": Operator("gather", 2, _gather),
    "scatter_": Operator("scatter", 2, _scatter),
    "send": Operator("send", 1, _send),
    "recv_": Operator("recv", 1, _receive),
    "recv_any_source_": Operator("recv", 1, _receive),
    "barrier": Operator("barrier", 1, _barrier),
    "monitored_barrier_": Operator("barrier", 1, _barrier),
}
"""By name; of coalesced operators the sum of their tensors, as one collective (which is what travels)."""
