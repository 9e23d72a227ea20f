"""The learning rate by step, and by batch size. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from meshwright.train.optim.config import OptimizerError

SHAPES = ("constant", "linear", "cosine", "wsd", "inverse_sqrt")
DECAYS = ("linear", "cosine", "sqrt")
RULES = ("none", "linear", "sqrt")


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves. Raises OptimizerError for what cannot be."""

    name: str = "cosine"
    """constant, linear, cosine (arXiv:1608.03983 equation 5), wsd (warm-up, stable, decay: arXiv:2404.06395 section 4)
    or inverse_sqrt (arXiv:1706.03762 equation 3)."""
    warmup_steps: int = 0
    min_ratio: float = 0.0
    """The least rate, relative to the peak."""
    decay_steps: int | None = None
    """wsd: the last steps, in which the rate falls; None: a tenth of all steps, as in the paper."""
    decay: str = "linear"
    """wsd: the shape of the fall: linear, cosine or sqrt (1 - √progress: arXiv:2405.18392 section 3)."""

    def __post_init__(self) -> None:
        if self.name not in SHAPES:
            raise OptimizerError(f"There is no schedule {self.name!r}.", legal=SHAPES)
        if self.decay not in DECAYS:
            raise OptimizerError(f"There is no decay {self.decay!r}.", legal=DECAYS)
        if self.name != "wsd" and (self.decay_steps is not None or self.decay != "linear"):
            raise OptimizerError(f"{self.name} has no decay_steps and no decay; wsd has.")
        if self.warmup_steps < 0 or (self.decay_steps is not None and self.decay_steps < 0):
            raise OptimizerError("warmup_steps and decay_steps must be 0 or more.")
        if self.name == "inverse_sqrt" and self.warmup_steps == 0:
            raise OptimizerError("inverse_sqrt needs warmup_steps above 0: its rate is √(warmup_steps / step).")
        if not 0 <= self.min_ratio <= 1:
            raise OptimizerError(f"min_ratio is {self.min_ratio}; it must be from 0 to 1.")


def lr_at(step: int, peak: float, config: ScheduleConfig, total_steps: int) -> float:
    """The rate of the update after `step` updates (0 for the first), of `total_steps`, with the highest rate `peak`.

    Warm-up is linear, (step + 1) / warmup_steps: no update has a rate of 0, and the last of the warm-up has the peak.
    The decays start with the first update after it and would reach their least with update `total_steps`; then they
    stay there. Raises OptimizerError where warm-up and decay of wsd overlap.
    """
    warmup = config.warmup_steps
    decay_steps = decay_length(config, total_steps)
    if decay_steps and warmup + decay_steps > total_steps:
        raise OptimizerError(f"{warmup} steps of warm-up and {decay_steps} of decay do not fit in {total_steps} steps.")
    if step < warmup:
        return peak * (step + 1) / warmup
    if config.name == "inverse_sqrt":
        return peak * max(config.min_ratio, math.sqrt(warmup / step))
    start = total_steps - decay_steps if config.name == "wsd" else warmup
    progress = 0.0 if step < start else min((step - start) / max(total_steps - start, 1), 1.0)
    fall = _FALLS[config.decay if config.name == "wsd" else config.name]
    return peak * (config.min_ratio + (1 - config.min_ratio) * fall(progress))


def decay_length(config: ScheduleConfig, total_steps: int) -> int:
    """Steps of a wsd schedule's decay; 0 for the other shapes."""
    if config.name != "wsd":
        return 0
    return math.ceil(total_steps / 10) if config.decay_steps is None else config.decay_steps


def scale_lr(lr: float, batch: int, base_batch: int, rule: str) -> float:
    """The rate for `batch` where `lr` is right for `base_batch`.

    linear: lr × batch / base_batch, for SGD (arXiv:1706.02677 section 2.1). sqrt: lr × √(batch / base_batch), which
    keeps the variance of the updates (arXiv:1404.5997 section 3.2); the rule for adaptive optimizers
    (arXiv:2205.10287). none: lr. Raises OptimizerError for another rule or an empty batch.
    """
    if rule not in RULES:
        raise OptimizerError(f"There is no rule {rule!r} to scale a learning rate.", legal=RULES)
    if batch < 1 or base_batch < 1:
        raise OptimizerError(f"A rate can't be scaled from a batch of {base_batch} to one of {batch}.")
    ratio = batch / base_batch
    return lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[rule]


_FALLS: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1 - progress,
    "cosine": lambda progress: 0.5 * (1 + math.cos(math.pi * progress)),
    "sqrt": lambda progress: 1 - math.sqrt(progress),
}
