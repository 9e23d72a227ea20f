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

    def loaded(self) -> None:
        """The states were filled in place."""
        for leaf in self.leaves:
            leaf.publish()

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
        self._steps: dict[Leaf, int] = {}

    def __getitem__(self, leaf: Leaf) -> dict[str, Tensor]:
        if leaf not in self._states:
            self._states[leaf] = {"step": torch.zeros((), dtype=torch.float32), **self._make(leaf)}
            self._steps[leaf] = 0
        return self._states[leaf]

    def advance(self, leaf: Leaf) -> tuple[int, dict[str, Tensor]]:
        """Count one more step; returns its number, from 1, and the states."""
        state = self[leaf]
        self._steps[leaf] += 1
        return self._steps[leaf], state

    def step(self, leaf: Leaf) -> int:
        """The number of the last step."""
        return self._steps[leaf]

    def saved(self, leaf: Leaf) -> dict[str, Tensor]:
        """The states with the count written to its tensor. A number steers the steps: no tensor is read in them."""
        state = self[leaf]
        state["step"].fill_(self._steps[leaf])
        return state

    def loaded(self) -> None:
        """Read the counts from their tensors."""
        self._steps = {leaf: int(state["step"]) for leaf, state in self._states.items()}
