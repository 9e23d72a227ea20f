"""AdamW and SGD: torch.optim's own, fused, over plain local tensors. Elementwise, so shards need nothing more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.engine import Engine
from meshwright.train.optim.leaf import Leaf

_FUSED = ("cuda", "cpu", "mps", "xpu")
"""Devices with fused kernels (torch.utils._foreach_utils)."""
_BUCKET = 2**26
"""Elements of a master copy that are updated together: as many gradients are copied at once, and no more."""


class Native(Engine):
    """torch.optim.AdamW, or torch.optim.SGD."""

    def __init__(self, leaves: Sequence[Leaf], config: OptimConfig, lr: float, rule: str) -> None:
        super().__init__(leaves, config, lr)
        self._held = [leaf for leaf in self.leaves if leaf.tensor.numel()]
        self._rule = rule
        self._torch = self._make() if self._held else None

    @torch.no_grad()
    def step(self) -> None:
        if self._torch is None:
            return
        for leaf in self._held:
            leaf.follow()
        for bucket in self._buckets():
            for leaf in bucket:
                leaf.tensor.grad = leaf.gradient()
            self._torch.step()
            for leaf in bucket:
                leaf.tensor.grad = None
                leaf.publish()

    def set_lr(self, lr: float) -> None:
        super().set_lr(lr)
        if self._torch is not None:
            for group in self._torch.param_groups:
                group["lr"] = lr

    def states(self, leaf: Leaf) -> dict[str, Tensor]:
        assert self._torch is not None, "only Leaves with elements have states"
        state: dict[str, Tensor] = self._torch.state[leaf.tensor]
        zeros = torch.zeros_like
        if self._rule == "sgd":
            if self.config.momentum and state.get("momentum_buffer") is None:
                state["momentum_buffer"] = zeros(leaf.tensor, requires_grad=False)
        elif not state:
            device = leaf.tensor.device if self._fused(leaf) else torch.device("cpu")
            state["step"] = torch.zeros((), dtype=torch.float32, device=device)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = zeros(leaf.tensor, requires_grad=False)
        return state

    def _make(self) -> torch.optim.Optimizer:
        groups: dict[tuple[float, bool], list[Tensor]] = {}
        for leaf in self._held:
            groups.setdefault((self.weight_decay(leaf), self._fused(leaf)), []).append(leaf.tensor)
        options = [
            {"params": tensors, "weight_decay": decay, "fused": fused} for (decay, fused), tensors in groups.items()
        ]
        if self._rule == "sgd":
            momentum, nesterov = self.config.momentum or 0.0, bool(self.config.nesterov)
            return torch.optim.SGD(options, lr=self.lr, momentum=momentum, nesterov=nesterov)
        assert self.config.betas is not None
        assert self.config.eps is not None
        return torch.optim.AdamW(options, lr=self.lr, betas=self.config.betas, eps=self.config.eps)

    def _fused(self, leaf: Leaf) -> bool:
        return leaf.tensor.device.type in _FUSED and leaf.tensor.is_contiguous()

    def _buckets(self) -> Iterator[list[Leaf]]:
        """All Leaves at once, or, where gradients have to be copied, some at a time."""
        if not any(leaf.master for leaf in self._held):
            yield self._held
            return
        bucket: list[Leaf] = []
        for leaf in self._held:
            bucket.append(leaf)
            if sum(other.tensor.numel() for other in bucket) >= _BUCKET:
                yield bucket
                bucket = []
        if bucket:
            yield bucket
