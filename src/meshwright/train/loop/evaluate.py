"""Held-out loss: the same normaliser as in training, no gradients."""

from __future__ import annotations

import torch
import torch.distributed as dist

from meshwright.train.data.errors import DataError
from meshwright.train.data.loader import Loader
from meshwright.train.loop.setup import Setup


class Evaluation:
    """What `train.eval_every` asks for; nothing where it is 0."""

    def __init__(self, setup: Setup) -> None:
        """Raises DataError where less is held out than one global batch."""
        config, held_out = setup.job.config.train, setup.dataset.validation
        self._setup, self._every = setup, config.eval_every
        if not self._every:
            return
        batches = len(held_out) // config.global_batch if held_out is not None else 0
        if held_out is None or not batches:
            raise DataError(
                f"An evaluation needs a global batch of {config.global_batch:,} sequences; "
                f"{len(held_out) if held_out is not None else 0:,} are held out.",
                ["a larger data.validation_share", "--train.eval_every 0"],
            )
        self._held_out, self._batches = held_out, min(config.eval_steps, batches)

    def after(self, step: int) -> float | None:
        """The mean loss by target token after `step` steps; None: it is no step that evaluates. Every rank calls it."""
        return self._measure() if self._every and step % self._every == 0 else None

    def _measure(self) -> float:
        setup, layout = self._setup, self._setup.mesh.layout
        with Loader(
            self._held_out, setup.job.config.train.global_batch, layout.data, setup.data_rank, layout.micro_batch,
            device=setup.device, prefetch=min(self._batches, 2),
        ) as loader:  # fmt: skip
            loss = torch.zeros((), dtype=torch.float64, device=setup.device)
            targets = 0
            for _ in range(self._batches):
                batches = setup.own(next(loader))
                targets += setup.target_tokens(loader.counted)
                share = setup.step.evaluate(batches)
                if setup.step.reports:
                    loss += share
        dist.all_reduce(loss)
        return float(loss) / max(targets, 1)
