"""LAMB (arXiv:1904.00962 algorithm 2): AdamW whose step on each parameter is as long as the parameter, times lr.

The norms are over whole parameters: two sums a parameter, all in one all-reduce over the stage.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.engine import Engine, StateTable
from meshwright.train.optim.leaf import Leaf, by_group
from meshwright.train.optim.reduce import accumulation_dtype, all_sums, square_sum


class Lamb(Engine):
    """LAMB with bias correction. What has no weight decay is not rescaled either, as in the authors' release."""

    def __init__(self, leaves: Sequence[Leaf], config: OptimConfig, lr: float) -> None:
        super().__init__(leaves, config, lr)
        assert config.betas is not None
        assert config.eps is not None
        assert config.trust_range is not None
        self._betas, self._eps, self._range = config.betas, config.eps, config.trust_range
        self._states = StateTable(
            lambda leaf: {name: torch.zeros_like(leaf.tensor.detach()) for name in ("exp_avg", "exp_avg_sq")}
        )

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
        moving = {leaf for leaf in leaves if self._move(leaf)}
        scaled = [leaf for leaf in leaves if self.config.decays(leaf.part)]
        norms = all_sums([self._norms(leaf, leaf in moving) for leaf in scaled], group)
        ratios = {leaf: self._ratio(pair) for leaf, pair in zip(scaled, norms, strict=True)}
        for leaf in leaves:
            if leaf in moving:
                update = self._direction(leaf)
                if leaf in ratios:
                    update.mul_(ratios[leaf])
                leaf.tensor.sub_(update, alpha=self.lr)
                leaf.publish()

    def _move(self, leaf: Leaf) -> bool:
        """Bring the moments up to date; False where there is nothing to update."""
        leaf.follow()
        gradient = leaf.gradient()
        if gradient is None or not gradient.numel():
            return False
        _, state = self._states.advance(leaf)
        beta1, beta2 = self._betas
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        return True

    def _direction(self, leaf: Leaf) -> Tensor:
        """r + λx of the paper. Computed twice a step, for its norm and for its use, to keep one at a time."""
        state, step = self._states[leaf], self._states.step(leaf)
        beta1, beta2 = self._betas
        update = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt_().add_(self._eps)
        torch.div(state["exp_avg"], update, out=update).div_(1 - beta1**step)
        return update.add_(leaf.tensor, alpha=self.weight_decay(leaf))

    def _norms(self, leaf: Leaf, moving: bool) -> Tensor:
        """This rank's part of ‖x‖² and ‖r + λx‖²."""
        dtype = accumulation_dtype(leaf.tensor.dtype)
        if not moving:
            return torch.zeros(2, dtype=dtype, device=leaf.tensor.device)
        pair = torch.stack([square_sum(leaf.tensor, dtype), square_sum(self._direction(leaf), dtype)])
        return pair / leaf.part.copies

    def _ratio(self, squares: Tensor) -> Tensor:
        """φ(‖x‖) / ‖r + λx‖; 1 where either is 0, so that a parameter of zeros can leave zero."""
        weight, update = squares.sqrt().unbind()
        ratio = weight.clamp(*self._range) / update
        return torch.where((weight > 0) & (update > 0), ratio, 1.0)
