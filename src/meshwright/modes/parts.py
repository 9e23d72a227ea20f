"""Part: this rank's part of one parameter, whatever mode cut it, and where it lies in the whole.

Optimizers, the gradient norm, initialisation, checkpoints and `check` see Parts only, so none of them knows a mode.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


@dataclass(eq=False)
class Part:
    """A rank's part of one parameter, or of a buffer: the box [offset, offset + size) of the whole `shape`."""

    name: str
    """The parameter's name in the whole model, the same under every layout."""
    shape: tuple[int, ...]
    """Of the whole parameter, without padding."""
    offset: tuple[int, ...]
    size: tuple[int, ...]
    """Extent of this rank's box; 0 somewhere: the rank holds nothing of it."""
    parameter: torch.Tensor
    """What the module holds: a DTensor where data-parallel ranks shard it, maybe padded along dim 0 otherwise."""
    copies: int
    """Ranks of the stage (`group`) that hold this same box."""
    group: dist.ProcessGroup
    """All ranks of this pipeline stage; together they hold every box of the parameter, `copies` times."""
    tied_copy: bool = False
    """A second copy of a parameter that another Part stands for (a tied table on the last stage); not counted twice."""

    @property
    def data(self) -> torch.Tensor:
        """This rank's numbers, of shape `size`: a plain tensor that shares the parameter's storage."""
        return self._cut(self.parameter).detach()

    @property
    def gradient(self) -> torch.Tensor | None:
        """The gradient's part, shaped like `data` and sharing its storage; None before backward."""
        return None if self.parameter.grad is None else self._cut(self.parameter.grad)

    @property
    def whole(self) -> bool:
        """Whether this rank holds all of the parameter."""
        return self.size == self.shape

    @torch.no_grad()
    def _cut(self, tensor: torch.Tensor) -> torch.Tensor:
        # Without gradient mode `to_local` dispatches nothing.
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if local.shape == self.size:
            return local
        for dim, length in enumerate(self.size):
            local = local.narrow(dim, 0, length)  # drops the padding rows of an uneven vocabulary
        return local
