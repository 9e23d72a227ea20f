"""One optimizer step: forward and backward of its micro-batches, the one norm, the one clip, the update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from meshwright.modes.gradients import stay_in_buckets
from meshwright.modes.parts import Part
from meshwright.modes.ranges import named
from meshwright.train.batch import Batch
from meshwright.train.optim.norm import clip, global_norm
from meshwright.train.optim.optimizer import PartOptimizer
from meshwright.train.optim.scaler import LossScaler
from meshwright.train.step import Step

SUMMING = ("adafactor", "lamb")
"""Optimizers whose steps hang on sums over ranks, which the two stages of a tied table may add up in another order."""


@dataclass(frozen=True)
class Updated:
    """What a step gave, still on the device."""

    share: torch.Tensor
    """This rank's share of the loss; see `Step.reports`."""
    norm: torch.Tensor
    """Gradient norm before the clip, without the loss scale."""
    skipped: bool
    """fp16: the gradients overflowed, and no parameter moved."""


def update(
    step: Step,
    optimizer: PartOptimizer,
    micro_batches: Sequence[Batch],
    *,
    target_tokens: int,
    max_norm: float | None,
    scaler: LossScaler | None = None,
    look: Callable[[Sequence[Part]], None] | None = None,
) -> Updated:
    """Do one step on this rank's micro-batches. `look` sees the parts with their gradients, before the clip.

    `target_tokens` is the global number; `max_norm` None: no clipping. Raises OptimizerError when fp16 diverges.
    """
    parts = step.parallel.parts
    scale = scaler.scale if scaler else 1.0
    share = step.run(micro_batches, target_tokens=target_tokens, loss_scale=scale)
    with named("clip"):
        norm = global_norm(parts)
    if look is not None:
        look(parts)
    good = scaler is None or scaler.good(norm)
    if good:
        with named("clip"):
            clip(parts, norm, max_norm, scale=scale)
        with named("optimizer"):
            optimizer.step()
            if optimizer.config.name in SUMMING:
                for table in step.parallel.tied:
                    table.equalise()
    if scaler:
        scaler.update(good)
    optimizer.zero_grad(keep=stay_in_buckets(step.parallel))
    step.finish()
    return Updated(share, norm / scale if scaler else norm, not good)
