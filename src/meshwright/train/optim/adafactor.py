"""Adafactor (arXiv:1804.04235) as torch.optim.Adafactor computes it, with statistics over whole parameters.

A matrix of m rows and n columns keeps m row and n column averages of its squared gradient; each rank keeps those of
its box. Two all-reduces a step over the stage: first the row and column sums that are cut and ‖x‖² of each parameter,
then ‖u‖² of each update. Of a stack (experts), each matrix has its own rows and columns; the two norms are the stack's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.engine import Engine, StateTable
from meshwright.train.optim.leaf import Leaf, by_group
from meshwright.train.optim.reduce import Box, accumulation_dtype, all_sums, gather_boxes, square_sum


@dataclass(frozen=True)
class _Cuts:
    """Which sums some rank cannot take alone."""

    rows: bool
    """The rows are spread over ranks: no rank has all terms of a column's sum."""
    columns: bool


@dataclass(eq=False)
class _Work:
    """One Leaf within one step."""

    leaf: Leaf
    gradient: Tensor | None
    """None where this rank has nothing to update."""
    rows: Tensor | None
    """Sums of the squared gradient over each row of the box; None for a vector."""
    columns: Tensor | None
    shared: list[Tensor]
    """This rank's part of the sums that are taken over the group: ‖x‖² and what the cuts need."""
    update: tuple[Tensor, ...] = ()
    """What the update is computed from: (variance,), or (rows, columns, mean of all rows)."""


class Adafactor(Engine):
    """Adafactor; lr bounds the relative step size and drives the weight decay, as in torch.optim."""

    def __init__(self, leaves: Sequence[Leaf], config: OptimConfig, lr: float) -> None:
        super().__init__(leaves, config, lr)
        assert config.rms_floor is not None
        assert config.beta2_decay is not None
        assert config.clip_threshold is not None
        self._floor, self._decay, self._threshold = config.rms_floor, config.beta2_decay, config.clip_threshold
        self._states = StateTable(_zeros)
        self._cuts: dict[Leaf, _Cuts] = {}
        for group, held in by_group(self.leaves):
            boxes = gather_boxes([leaf.part for leaf in held], group)
            for index, leaf in enumerate(held):
                self._cuts[leaf] = _cuts(leaf.part.shape, [of_rank[index] for of_rank in boxes])

    @torch.no_grad()
    def step(self) -> None:
        for group, leaves in by_group(self.leaves):
            self._step(group, leaves)

    def states(self, leaf: Leaf) -> dict[str, Tensor]:
        return self._states.saved(leaf)

    def loaded(self) -> None:
        super().loaded()
        self._states.loaded()

    def _step(self, group: dist.ProcessGroup, leaves: list[Leaf]) -> None:
        work = [self._begin(leaf) for leaf in leaves]
        sums = iter(all_sums([value for item in work for value in item.shared], group))
        for item in work:
            item.shared = [next(sums) for _ in item.shared]
            if item.gradient is not None:
                self._average(item, item.gradient)
        # Updates are computed twice, for their norms and for their use, to keep one at a time.
        sizes = all_sums([self._size(item) for item in work], group)
        for item, size in zip(work, sizes, strict=True):
            if item.gradient is not None:
                self._apply(item, item.gradient, size)

    def _begin(self, leaf: Leaf) -> _Work:
        """The sums that this rank can take alone."""
        leaf.follow()
        gradient = leaf.gradient()
        part, cuts = leaf.part, self._cuts[leaf]
        dtype = accumulation_dtype(leaf.tensor.dtype)
        work = _Work(leaf, gradient, None, None, [square_sum(leaf.tensor, dtype) / part.copies])
        if gradient is None or not gradient.numel():
            work.gradient = None
            gradient = torch.zeros_like(leaf.tensor)
        if len(part.shape) < 2:
            return work
        work.rows = torch.linalg.vector_norm(gradient, dim=-1, dtype=dtype).square_()
        work.columns = torch.linalg.vector_norm(gradient, dim=-2, dtype=dtype).square_()
        box = Box(part.offset, part.size).slices
        if cuts.columns:
            work.shared.append(_spread(work.rows / part.copies, part.shape[:-1], box[:-1]))
        if cuts.rows:
            work.shared.append(
                _spread(work.columns / part.copies, part.shape[:-2] + part.shape[-1:], box[:-2] + box[-1:])
            )
            before = torch.zeros_like(work.rows)
            if work.gradient is not None:
                # Every box that has some columns of a row keeps its average: each counts for its share of the columns.
                before = self._states[leaf]["row_var"].squeeze(-1).to(dtype) * (part.size[-1] / part.shape[-1])
            terms = torch.stack([before.sum(-1), work.rows.sum(-1)]) / part.copies
            work.shared.append(_spread(terms, (2, *part.shape[:-2]), (slice(None), *box[:-2])))
        return work

    def _average(self, work: _Work, gradient: Tensor) -> None:
        """Bring the averages up to date with sums over whole rows and columns."""
        part, cuts = work.leaf.part, self._cuts[work.leaf]
        step, state = self._states.advance(work.leaf)
        weight = step**self._decay
        if work.rows is None or work.columns is None:
            work.update = (state["variance"].lerp_(gradient.square(), weight),)
            return
        m, n = part.shape[-2:]
        box = Box(part.offset, part.size).slices
        shared = iter(work.shared[1:])
        rows = next(shared)[box[:-1]] if cuts.columns else work.rows
        columns = next(shared)[box[:-2] + box[-1:]] if cuts.rows else work.columns
        row_var, col_var = state["row_var"], state["col_var"]
        row_var.lerp_((rows / n).unsqueeze(-1).to(row_var.dtype), weight)
        col_var.lerp_((columns / m).unsqueeze(-2).to(col_var.dtype), weight)
        if cuts.rows:
            before, total = next(shared)[(slice(None), *box[:-2])].unbind()
            mean = ((1 - weight) * before + weight * total / n).div_(m)[..., None, None].to(row_var.dtype)
        else:
            mean = row_var.mean(-2, keepdim=True)
        work.update = (row_var, col_var, mean)

    def _update(self, work: _Work, gradient: Tensor) -> Tensor:
        """The gradient over the root of its variance."""
        least = torch.finfo(gradient.dtype).eps if self.config.eps is None else self.config.eps
        if len(work.update) == 1:
            variance = work.update[0].clone()
        else:
            row_var, col_var, mean = work.update
            variance = (row_var @ col_var).div_(mean.clamp(min=least))
        return variance.clamp_(min=least * least).rsqrt_().mul_(gradient)

    def _size(self, work: _Work) -> Tensor:
        """This rank's part of the update's ‖u‖²."""
        dtype = accumulation_dtype(work.leaf.tensor.dtype)
        if work.gradient is None:
            return torch.zeros((), dtype=dtype, device=work.leaf.tensor.device)
        return square_sum(self._update(work, work.gradient), dtype) / work.leaf.part.copies

    def _apply(self, work: _Work, gradient: Tensor, size: Tensor) -> None:
        """x ← (1 - lr λ) x - α u / max(1, RMS(u) / d), with α = max(floor, RMS(x)) min(lr, 1 / √t)."""
        leaf = work.leaf
        numel = torch.Size(leaf.part.shape).numel()
        step = self._states.step(leaf)
        alpha = (work.shared[0] / numel).sqrt().clamp(min=self._floor) * min(self.lr, step**-0.5)
        rms = (size / numel).sqrt()
        update = self._update(work, gradient).mul_(alpha / (rms / self._threshold).clamp(min=1.0))
        leaf.tensor.mul_(1 - self.lr * self.weight_decay(leaf)).sub_(update)
        leaf.publish()


def _zeros(leaf: Leaf) -> dict[str, Tensor]:
    tensor = leaf.tensor.detach()
    if len(leaf.part.shape) < 2:
        return {"variance": torch.zeros_like(tensor)}
    *stack, m, n = tensor.shape
    return {"row_var": tensor.new_zeros((*stack, m, 1)), "col_var": tensor.new_zeros((*stack, 1, n))}


def _cuts(shape: tuple[int, ...], boxes: list[Box]) -> _Cuts:
    held = [box for box in boxes if box.numel]
    if len(shape) < 2:
        return _Cuts(False, False)
    return _Cuts(any(box.size[-2] < shape[-2] for box in held), any(box.size[-1] < shape[-1] for box in held))


def _spread(values: Tensor, shape: tuple[int, ...], place: tuple[slice, ...]) -> Tensor:
    """Zeros of `shape` with `values` in their place."""
    whole = values.new_zeros(shape)
    whole[place] = values
    return whole
