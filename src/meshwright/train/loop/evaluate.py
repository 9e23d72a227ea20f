"""Held-out loss: the same normaliser as in training, no gradients."""

from __future__ import annotations

import torch
import torch.distributed as dist

from meshwright.train.data.loader import Loader
from meshwright.train.loop.setup import Setup


def evaluate(setup: Setup) -> float | None:
    """Mean loss by target token over `eval_steps` global batches of held-out data; None: nothing is held out."""
    held_out, config = setup.dataset.validation, setup.job.config.train
    if held_out is None or len(held_out) < config.global_batch:
        return None
    layout = setup.mesh.layout
    loader = Loader(
        held_out, config.global_batch, layout.data, setup.mesh.index("data") // layout.context, layout.micro_batch,
        device=setup.device, prefetch=0,
    )  # fmt: skip
    loss = torch.zeros((), dtype=torch.float64, device=setup.device)
    targets = 0
    steps = min(config.eval_steps, len(held_out) // config.global_batch)
    for _ in range(steps):
        batches = next(loader)
        targets += setup.target_tokens(loader.counted)
        share = setup.step.evaluate(setup.own(batches))
        if setup.step.reports:
            loss += share
    dist.all_reduce(loss)
    return float(loss) / max(targets, 1)
