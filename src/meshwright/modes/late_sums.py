"""LateSums: FSDP2's reduce-scatters beside the backward that follows, where there are no streams to put them on.

On a GPU FSDP2 sends a block's gradients off on a stream of their own. On a CPU it would wait for each, and with it for
the slowest rank, block by block. Here they are only begun, and landed once after backward.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter


class LateSums(ReduceScatter):
    """What FSDP2 calls for a reduce-scatter (`set_custom_reduce_scatter`)."""

    def __init__(self, flights: int) -> None:
        self.late = False
        """Whether nobody reads the sums before `land`: not while gradients are accumulated into others."""
        self._flights = flights
        self._pending: deque[tuple[Any, torch.Tensor, torch.Tensor]] = deque()

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        work = dist.reduce_scatter_single(output_tensor, input_tensor, op=op, group=group, async_op=True)
        self._pending.append((work, output_tensor, input_tensor))
        while len(self._pending) > (self._flights if self.late else 0):
            self._pending.popleft()[0].wait()

    def land(self) -> None:
        """Wait for all that is on its way."""
        while self._pending:
            self._pending.popleft()[0].wait()
