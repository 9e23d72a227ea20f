"""Moves: FSDP2's offloaded shards go to the device and gradients to the host; in a rehearsal both places are "cpu".

`Tensor.to(device)` would copy nothing there. While entered, it copies, and the ledger knows where to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from meshwright.rehearse.ledger import Ledger


class Moves(TorchFunctionMode):
    """Entered around FSDP2's own steps, which ask for a device only to go from one place to the other."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], torch.device):
            tensor = args[0]
            with self._ledger.placing(host=not self._ledger.on_host(tensor)):
                return tensor.clone()
        return func(*args, **(kwargs or {}))
