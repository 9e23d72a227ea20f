"""The loss scale of fp16: as large as the gradients allow, found by trying (arXiv:1710.03740 section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from meshwright.train.optim.config import OptimizerError


class LossScaler:
    """A loss scale that doubles after `interval` good steps in a row and halves when gradients overflow.

    In a step: backward of loss × `scale`; `norm = global_norm(parts)`; `good = scaler.good(norm)`; if good,
    `clip(parts, norm, max_norm, scale=scaler.scale)` and `optimizer.step()`; then `scaler.update(good)`.
    The norm has the same bits on every rank, so that all ranks decide alike without talking.
    """

    def __init__(
        self,
        scale: float = 2.0**16,
        *,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        minimum: float = 1.0,
        maximum: float = 2.0**32,
    ) -> None:
        if not 0 < minimum <= scale <= maximum:
            raise OptimizerError(f"A loss scale of {scale} does not lie in {minimum} to {maximum}.")
        if not (growth > 1 and 0 < backoff < 1 and interval > 0):
            raise OptimizerError("A loss scale needs growth above 1, backoff between 0 and 1, and an interval above 0.")
        self.scale = scale
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.minimum, self.maximum = minimum, maximum
        self.good_steps = 0
        """Good steps since the scale last moved."""

    def good(self, norm: Tensor) -> bool:
        """Whether the gradients of this step can be used: their norm is finite. Waits for the device."""
        return bool(norm.isfinite())

    def update(self, good: bool) -> None:
        """Move the scale after a step. Raises OptimizerError on an overflow at the least scale."""
        if not good:
            if self.scale <= self.minimum:
                raise OptimizerError(
                    f"Gradients overflow fp16 at the least loss scale, {self.minimum:g}: the loss diverges, or the "
                    "model does not fit fp16. Train in bf16, or with a smaller learning rate."
                )
            self.scale = max(self.scale * self.backoff, self.minimum)
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps >= self.interval:
            self.scale = min(self.scale * self.growth, self.maximum)
            self.good_steps = 0

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"scale": self.scale, "good_steps": float(self.good_steps)}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue where `state` was taken."""
        self.scale = float(state["scale"])
        self.good_steps = int(state["good_steps"])
