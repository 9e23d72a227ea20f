"""Engine: one update rule over some Leaves. A PartOptimizer has one, Muon's has two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.leaf import Leaf


class Engine(ABC):
    """Updates its Leaves from their gradients; keeps its states by Leaf."""

    def __init__(self, leaves: Sequence[Leaf], config: OptimConfig, lr: float) -> None:
        self.leaves = list(leaves)
        self.config = config
        self.peak = lr
        self.lr = lr

    @abstractmethod
    def step(self) -> None:
        """Update all Leaves that have a gradient. Collective where the rule is over whole parameters."""

    @abstractmethod
    def states(self, leaf: Leaf) -> dict[str, Tensor]:
        """The live states of a Leaf with elements, made if there are none yet; `step` is a scalar."""

    def set_lr(self, lr: float) -> None:
        """Use this rate from now on."""
        self.lr = lr

    def weight_decay(self, leaf: Leaf) -> float:
        """The decay of this Leaf, 0 where it has none."""
        return self.config.weight_decay if self.config.decays(leaf.part) else 0.0


class StateTable:
    """States of Leaves, each made at its first use."""

    def __init__(self, make: Callable[[Leaf], dict[str, Tensor]]) -> None:
        self._make = make
        self._states: dict[Leaf, dict[str, Tensor]] = {}

    def __getitem__(self, leaf: Leaf) -> dict[str, Tensor]:
        if leaf not in self._states:
            # On the host: the count steers the host's arithmetic, and reading it waits for no device.
            self._states[leaf] = {"step": torch.zeros((), dtype=torch.float32), **self._make(leaf)}
        return self._states[leaf]

    def advance(self, leaf: Leaf) -> tuple[int, dict[str, Tensor]]:
        """Count one more step; returns its number, from 1, and the states."""
        state = self[leaf]
        state["step"] += 1
        return int(state["step"]), state
