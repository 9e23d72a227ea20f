"""Muon (kellerjordan.github.io/posts/muon; arXiv:2502.16982): momentum, orthogonalised, for matrices.

Orthogonalising needs whole matrices. Each matrix of the stage has one owner: the ranks send it their boxes, it runs
the Newton-Schulz steps, and sends the boxes back: two all-to-alls a round, each of 2 bytes a parameter (the steps run
in bfloat16, so nothing is lost on the way). The owners share the work evenly; with replicas, each does its part only.
A stack (experts) is as many matrices as it has places.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim._muon import (
    DEFAULT_A,
    DEFAULT_B,
    DEFAULT_C,
    EPS,
    _adjust_lr,
    _zeropower_via_newtonschulz,
)

from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.engine import Engine, StateTable
from meshwright.train.optim.leaf import Leaf, by_group
from meshwright.train.optim.matrices import Matrix, Round, assign_matrices
from meshwright.train.optim.reduce import gather_boxes


class Muon(Engine):
    """The part of Muon that trains matrices; a PartOptimizer leaves the rest to AdamW."""

    def __init__(self, leaves: Sequence[Leaf], config: OptimConfig, lr: float) -> None:
        super().__init__(leaves, config, lr)
        assert config.momentum is not None
        assert config.newton_schulz_steps is not None
        self._momentum, self._steps = config.momentum, config.newton_schulz_steps
        self._states = StateTable(lambda leaf: {"momentum_buffer": torch.zeros_like(leaf.tensor.detach())})
        self._work = [(held, _rounds(group, held)) for group, held in by_group(self.leaves)]

    @torch.no_grad()
    def step(self) -> None:
        for leaves, rounds in self._work:
            self._step(leaves, rounds)

    def states(self, leaf: Leaf) -> dict[str, Tensor]:
        return self._states[leaf]

    def _step(self, leaves: list[Leaf], rounds: list[Round]) -> None:
        moving = [self._move(leaf) for leaf in leaves]
        like = torch.empty(0, dtype=torch.bfloat16, device=leaves[0].tensor.device)
        for matrices in rounds:
            for matrix, update in matrices.map(lambda matrix: self._box(matrix, leaves), self._orthogonalise, like):
                if moving[matrix.parameter]:
                    self._apply(leaves[matrix.parameter], matrix, update)
        for leaf in leaves:
            leaf.publish()

    def _move(self, leaf: Leaf) -> bool:
        """Bring the momentum up to date; False where there is nothing to update."""
        leaf.follow()
        gradient = leaf.gradient()
        if gradient is None or not gradient.numel():
            return False
        _, state = self._states.advance(leaf)
        state["momentum_buffer"].lerp_(gradient, 1 - self._momentum)
        return True

    def _box(self, matrix: Matrix, leaves: list[Leaf]) -> Tensor:
        """This rank's box of what is orthogonalised; zeros where it has no gradient."""
        leaf = leaves[matrix.parameter]
        place = _local_place(leaf, matrix)
        gradient = leaf.gradient(place)
        momentum = self._states[leaf]["momentum_buffer"][place]
        if gradient is None:
            return torch.zeros_like(momentum)
        return gradient.lerp(momentum, self._momentum) if self.config.nesterov else momentum

    def _orthogonalise(self, matrix: Tensor) -> Tensor:
        return _zeropower_via_newtonschulz(matrix, (DEFAULT_A, DEFAULT_B, DEFAULT_C), self._steps, EPS)

    def _apply(self, leaf: Leaf, matrix: Matrix, update: Tensor) -> None:
        box = leaf.tensor[_local_place(leaf, matrix)]
        rate = _adjust_lr(self.lr, self.config.adjustment, torch.Size(matrix.shape))
        box.mul_(1 - self.lr * self.weight_decay(leaf)).add_(update, alpha=-rate)


def _local_place(leaf: Leaf, matrix: Matrix) -> tuple[int, ...]:
    """Where this rank keeps a matrix of a stack."""
    return tuple(place - start for place, start in zip(matrix.place, leaf.part.offset[:-2], strict=True))


def _rounds(group: dist.ProcessGroup, leaves: list[Leaf]) -> list[Round]:
    parts = [leaf.part for leaf in leaves]
    assigned = assign_matrices([part.shape for part in parts], gather_boxes(parts, group))
    return [Round(matrices, group) for matrices in assigned]
