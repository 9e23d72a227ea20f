"""The steps of a run on one rank: batches in, numbers out, checkpoints where the configuration says."""

from __future__ import annotations

import logging
from collections import deque

import torch
import torch.distributed as dist

from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.launch.error_files import noted_signal
from meshwright.train.launch.signals import StopFlag
from meshwright.train.loop.evaluate import Evaluation
from meshwright.train.loop.report import Measured, Reporter
from meshwright.train.loop.setup import Setup
from meshwright.train.loop.weights import state_of
from meshwright.train.optim.schedule import lr_at
from meshwright.train.update import update

logger = logging.getLogger(__name__)


class Steps:
    """Steps until the configured number is done, or until somebody asks to stop."""

    def __init__(self, setup: Setup, stop: StopFlag, reporter: Reporter, begun_at: int) -> None:
        self.setup, self.reporter = setup, reporter
        self.done = begun_at
        """Optimizer steps so far, those of earlier runs among them."""
        self.stopped: str | None = None
        """Name of the signal that ended the run early."""
        self._stop = stop
        self._saved = begun_at
        self._evaluation = Evaluation(setup)
        self._pending: deque[Measured] = deque()
        # Reading a number waits for the device: on a GPU it is done when the next step is under way.
        self._lag = 0 if setup.device.type == "cpu" else 1

    def go(self) -> None:
        """Do the steps that are left; save on the way, and at the end. Raises OptimizerError where a run diverges."""
        setup, config = self.setup, self.setup.job.config
        total, every = config.train.steps, config.checkpoint.every
        with self.reporter, setup.store, setup.loader:
            while self.done < total and not self.stopped:
                self._pending.append(self._step())
                self._report(self._lag)
                if every and self.done % every == 0 and self.done < total:
                    self._save_on_the_way()
            self._report(0)
            if self._saved != self.done:
                self._save(asynchronous=False)

    def _step(self) -> Measured:
        setup, config = self.setup, self.setup.job.config
        batches = setup.own(next(setup.loader))
        targets = setup.target_tokens(setup.loader.counted)
        lr = lr_at(self.done, setup.peak_lr, config.schedule, config.train.steps)
        setup.optimizer.set_lr(lr)
        scale = setup.scaler.scale if setup.scaler else None
        updated = update(
            setup.step,
            setup.optimizer,
            batches,
            target_tokens=targets,
            max_norm=config.train.max_norm or None,
            scaler=setup.scaler,
        )
        share = updated.share if setup.step.reports else torch.zeros_like(updated.share)
        # One sum carries the loss and whether any rank was asked to stop: all ranks read the same, and stop alike.
        asked = torch.full_like(share, self._stop.asked, dtype=torch.float64)
        values = torch.stack((share.double(), asked, updated.norm.to(share.device, torch.float64)))
        dist.all_reduce(values[:2])
        self.done += 1
        setup.tokens += targets
        held_out = self._evaluation.after(self.done)
        return Measured(self.done, values, lr, targets, scale, updated.skipped, held_out)

    def _report(self, leave: int) -> None:
        """Read the numbers of all steps but the last `leave`."""
        while len(self._pending) > leave:
            asked = self.reporter.take(self._pending.popleft())
            if asked and self.done < self.setup.job.config.train.steps:
                said = noted_signal(self.setup.job.folder) or self._stop.reason
                self.stopped = said or "a signal to another rank"

    def _save_on_the_way(self) -> None:
        """Save; where that fails, the run goes on and tries again when the next checkpoint is due."""
        try:
            self._save(asynchronous=self.setup.job.config.checkpoint.async_)
        except CheckpointError as error:
            logger.warning(f"{error} Training goes on.")

    def _save(self, *, asynchronous: bool) -> None:
        setup = self.setup
        self._report(0)  # raises where the parameters are no numbers any more: no good checkpoint makes room for them
        try:
            setup.store.wait()
        except CheckpointError as error:
            logger.warning(f"{error} Training goes on.")
        state = state_of(setup, self.done)
        setup.store.save(state, setup.kept, setup.optimizer.state_parts(), asynchronous=asynchronous)
        self._saved = self.done
