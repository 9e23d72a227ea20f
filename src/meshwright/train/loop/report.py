"""What a step's numbers become: a line of metrics, a point of each curve, the progress line, the end of the run."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from types import TracebackType

import torch
import torch.distributed as dist

from meshwright.train.config.toml_file import to_table
from meshwright.train.launch.signals import meeting_device
from meshwright.train.loop.setup import Setup
from meshwright.train.metrics.prediction import Measurement
from meshwright.train.metrics.progress import Progress
from meshwright.train.metrics.step import StepReport
from meshwright.train.metrics.throughput import Throughput, mfu
from meshwright.train.metrics.usage import peak_memory
from meshwright.train.metrics.writer import MetricsWriter, open_metrics
from meshwright.train.optim.config import OptimizerError


@dataclass(frozen=True)
class Measured:
    """One step's numbers, still on the device."""

    step: int
    values: torch.Tensor
    """Loss, ranks that were asked to stop, gradient norm: alike on every rank."""
    lr: float
    targets: int
    scale: float | None
    skipped: bool
    eval_loss: float | None


class Reporter:
    """Reads the steps' numbers on every rank; the first rank writes them. A context manager around the steps."""

    def __init__(self, setup: Setup, begun_at: int) -> None:
        self.setup, self._begun_at = setup, begun_at
        self.last: StepReport | None = None
        """Of the last step."""
        self._throughput = Throughput(setup.job.config.metrics.window)
        self._memory = (0.0, "")
        self._read_at = 0.0
        self._writer: MetricsWriter | None = None
        self._progress: Progress | None = None

    def __enter__(self) -> Reporter:
        job, config = self.setup.job, self.setup.job.config
        if job.here.place.rank == 0 and self._begun_at < config.train.steps:
            self._writer = open_metrics(job.folder, config.metrics, to_table(config), resumed_step=self._begun_at)
            if config.metrics.progress:
                self._progress = Progress(config.train.steps, config.train.log_every)
        self._read_at = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.close()
        if self._writer is not None:
            self._writer.close()

    def take(self, measured: Measured) -> bool:
        """Read one step's numbers, which waits for the device, and tell them; returns whether a rank was asked to stop.

        Every rank calls it, step by step. Raises OptimizerError, on every rank, for a gradient that is no number: it
        has been applied.
        """
        loss, asked, norm = measured.values.tolist()
        now = time.perf_counter()
        # Between readings lies a step with all that belongs to it, whatever was only queued meanwhile.
        self._throughput.add(self.setup.job.workload.tokens, now - self._read_at)
        if self.last is None or measured.step % self.setup.job.config.train.log_every == 0:
            self._memory = fullest(self.setup.device)
        self.last = self._report(measured, loss, norm, now - self._read_at)
        self._read_at = now
        if self._writer is not None:
            self._writer.write(self.last)
        if self._progress is not None:
            self._progress.show(self.last)
        if not measured.skipped and not math.isfinite(norm):
            raise OptimizerError(
                f"The run diverges: in step {measured.step:,} the loss is {loss:g} and the gradient norm {norm:g}. "
                "Checkpoints before it are untouched. Train with a smaller learning rate, or a longer warm-up."
            )
        return bool(asked)

    def _report(self, measured: Measured, loss: float, norm: float, seconds: float) -> StepReport:
        job = self.setup.job
        peak = job.peak_flops
        step_seconds = self._throughput.step_seconds
        return StepReport(
            step=measured.step,
            loss=loss,
            grad_norm=norm,
            lr=measured.lr,
            tokens=job.workload.tokens,
            seconds=seconds,
            tokens_per_second=self._throughput.tokens_per_second,
            memory_bytes=self._memory[0],
            memory_kind=self._memory[1],
            mfu=mfu(job.model, job.workload, step_seconds, job.ranks, peak) if peak else None,
            target_tokens=measured.targets,
            eval_loss=measured.eval_loss,
            loss_scale=measured.scale,
            skipped=measured.skipped,
        )

    def measurement(self) -> Measurement | None:
        """What the run needed; None where no step was left to do. Every rank calls it."""
        if self.last is None:
            return None
        memory, kind = fullest(self.setup.device)
        return Measurement(
            step_seconds=self._throughput.step_seconds,
            tokens_per_second_per_device=self._throughput.tokens_per_second / self.setup.job.ranks,
            memory_bytes=memory,
            memory_kind=kind,
            mfu=self.last.mfu,
        )


def fullest(device: torch.device) -> tuple[float, str]:
    """Peak memory of the fullest rank, and what the figure is of. Every rank calls it; no device is waited for."""
    used, kind = peak_memory(device)
    peak = torch.tensor(used, dtype=torch.float64, device=meeting_device())
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    return float(peak), kind
