"""Buckets: DDP orders its buckets anew after the first step, by numbers that it reads; those have to be real."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from meshwright.rehearse.ledger import Ledger


class _Reducer:
    """DDP's reducer, whose lists of parameters are real tensors while it orders its buckets."""

    def __init__(self, reducer: Any, ledger: Ledger) -> None:
        self._reducer, self._ledger = reducer, ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        with self._ledger.real_numbers():
            return bool(self._reducer._rebuild_buckets())


def order_buckets(runners: list[nn.Module], ledger: Ledger) -> None:
    """Let those of `runners` that are DDP order their buckets without numbers in the gradients."""
    for runner in runners:
        if isinstance(runner, DistributedDataParallel):
            runner.reducer = _Reducer(runner.reducer, ledger)  # type: ignore[assignment]
