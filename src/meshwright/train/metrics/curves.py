"""Curves for TensorBoard, under the names that metrics.jsonl has."""

from __future__ import annotations

import math
from pathlib import Path

from meshwright.train.config.sense import missing
from meshwright.train.metrics.step import StepReport


class TensorBoardSink:
    """Writes an event file into `folder`."""

    def __init__(self, folder: Path, resumed_step: int = 0) -> None:
        """Open an event file; TensorBoard hides what older files say of steps after `resumed_step`.

        Raises RequestError where tensorboard is not installed.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing("tensorboard") from error
        self._writer = SummaryWriter(str(folder), purge_step=resumed_step + 1 if resumed_step else None, flush_secs=10)

    def write(self, report: StepReport) -> None:
        """One point a curve; a number that is not finite is a gap."""
        for name, value in report.numbers().items():
            if name != "step" and isinstance(value, (int, float)) and math.isfinite(value):
                self._writer.add_scalar(name, value, report.step)

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()
