"""Muon (kellerjordan.github.io/posts/muon; arXiv:2502.16982): momentum, orthogonalised, for matrices.

Orthogonalising needs whole matrices. Each matrix of the stage has one owner: the ranks send it their boxes, it runs
the Newton-Schulz steps, and sends the boxes back: two all-to-alls a round, in the dtype of the steps (bfloat16: 2 bytes
a parameter each way). The owners share the work evenly; with replicas, each does its part only.
A stack (experts) is as many matrices as it has places.

torch.optim.Muon computes the same for whole matrices, always in bfloat16, which a CPU multiplies several times slower
than float32 unless it has instructions for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.engine import Engine, StateTable
from meshwright.train.optim.leaf import Leaf, by_group, select
from meshwright.train.optim.matrices import Matrix, Round, assign_matrices
from meshwright.train.optim.reduce import gather_boxes

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that moves singular values towards 1 (Keller Jordan's post)."""
_EPS = 1e-7


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
        return self._states.saved(leaf)

    def loaded(self) -> None:
        super().loaded()
        self._states.loaded()

    def _step(self, leaves: list[Leaf], rounds: list[Round]) -> None:
        moving = [self._move(leaf) for leaf in leaves]
        like = torch.empty(0, dtype=self._dtype(leaves), device=leaves[0].tensor.device)
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
        momentum = select(self._states[leaf]["momentum_buffer"], place)
        if gradient is None:
            return torch.zeros_like(momentum)
        return gradient.lerp(momentum, self._momentum) if self.config.nesterov else momentum

    def _dtype(self, leaves: list[Leaf]) -> torch.dtype:
        """Of the Newton-Schulz steps: as told; else bfloat16, but float32 on a CPU, and float64 for float64."""
        if self.config.newton_schulz_dtype is not None:
            found: torch.dtype = getattr(torch, self.config.newton_schulz_dtype)
            return found
        if any(leaf.tensor.dtype == torch.float64 for leaf in leaves):
            return torch.float64
        return torch.float32 if leaves[0].tensor.device.type == "cpu" else torch.bfloat16

    def _orthogonalise(self, matrix: Tensor) -> Tensor:
        return orthogonalise(matrix, self._steps)

    def _apply(self, leaf: Leaf, matrix: Matrix, update: Tensor) -> None:
        box = select(leaf.tensor, _local_place(leaf, matrix))
        rate = self.lr * adjustment(matrix.shape, self.config.adjustment)
        box.mul_(1 - self.lr * self.weight_decay(leaf)).add_(update, alpha=-rate)


def orthogonalise(matrix: Tensor, steps: int) -> Tensor:
    """About U Vᵀ of U S Vᵀ = `matrix` [m, n], by Newton-Schulz steps in its dtype; `matrix` is used up."""
    a, b, c = _COEFFICIENTS
    wide = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    wide.div_(wide.norm().clamp(min=_EPS))  # the largest singular value is then at most 1
    for _ in range(steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if matrix.size(0) > matrix.size(1) else wide


def adjustment(shape: tuple[int, int], rule: str | None) -> float:
    """What a step on a matrix of `shape` is multiplied by.

    match_rms_adamw: 0.2 √max(m, n), which makes the update's root mean square AdamW's (arXiv:2502.16982 equation 4).
    original: √max(1, m / n) (Keller Jordan's post).
    """
    m, n = shape
    return 0.2 * math.sqrt(max(m, n)) if rule == "match_rms_adamw" else math.sqrt(max(1.0, m / n))


def _local_place(leaf: Leaf, matrix: Matrix) -> tuple[int, ...]:
    """Where this rank keeps a matrix of a stack."""
    return tuple(place - start for place, start in zip(matrix.place, leaf.part.offset[:-2], strict=True))


def _rounds(group: dist.ProcessGroup, leaves: list[Leaf]) -> list[Round]:
    parts = [leaf.part for leaf in leaves]
    assigned = assign_matrices([part.shape for part in parts], gather_boxes(parts, group))
    return [Round(matrices, group) for matrices in assigned]
