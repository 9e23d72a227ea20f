"""One run on one rank, from joining the job to leaving it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from meshwright.train.checkpoint.export import export_checkpoint
from meshwright.train.checkpoint.folder import newest_whole
from meshwright.train.config.job import Job
from meshwright.train.config.toml_file import to_table
from meshwright.train.launch.process_group import finalize, initialize
from meshwright.train.launch.signals import StopFlag
from meshwright.train.loop.evaluate import evaluate
from meshwright.train.loop.facts import running_layout
from meshwright.train.loop.setup import Setup, set_up
from meshwright.train.loop.weights import resume, start_weights, state_of
from meshwright.train.metrics.heading import heading_lines
from meshwright.train.metrics.logs import set_up_logs
from meshwright.train.metrics.prediction import Measurement, comparison_lines, predict, prediction_lines
from meshwright.train.metrics.progress import Progress
from meshwright.train.metrics.step import StepReport
from meshwright.train.metrics.summary import summary_document, write_summary
from meshwright.train.metrics.throughput import Throughput, mfu
from meshwright.train.metrics.usage import peak_memory
from meshwright.train.metrics.writer import MetricsWriter, open_metrics
from meshwright.train.optim.schedule import lr_at
from meshwright.train.update import update


def train(job: Job) -> None:
    """Train `job` as one of its ranks. Raises RequestError where something does not fit, before a step is done."""
    launch = job.config.launch
    place = job.here.place
    device = initialize(
        place, device=job.device, backend=job.backend, timeout=launch.timeout_s, threads=launch.threads or None
    )
    log = set_up_logs(job.folder, place.rank)
    first = place.rank == 0
    prediction = predict(job)
    if first:
        for line in [*heading_lines(job), *prediction_lines(job, prediction)]:
            log.info(line)
    with StopFlag() as stop:
        setup = set_up(job, device)
        newest = setup.store.latest() if job.config.checkpoint.resume else None
        start_weights(setup, newest)
        state = resume(setup, newest)
        setup.store.check(setup.step.parallel.parts, setup.optimizer.state_parts())
        running = running_layout(setup.step)
        log.info(running)
        log.info(f"data: {setup.dataset.describe(job.config.train.steps * job.config.train.global_batch)}")
        if newest is not None:
            log.info(f"resumed from {newest} at step {state.step:,}")
        if state.step >= job.config.train.steps:
            log.info(f"all {state.step:,} steps are done: nothing is left to do")
        run = Run(setup, stop, state.step, state.tokens, first)
        run.go()
    if run.stopped:
        log.info(f"stopped by {run.stopped} after step {run.done:,}; the same command goes on from there")
    if first:
        measured = run.measurement()
        if measured is not None:
            for line in comparison_lines(prediction, measured):
                log.info(line)
        document = summary_document(
            job, prediction, measured, run.last, layout_run=running, first_step=state.step, stopped_by=run.stopped
        )
        write_summary(job.folder, document)
        _export(setup, log.info) if not run.stopped else None
    if dist.get_world_size() > 1:
        dist.barrier()
    finalize()


def _export(setup: Setup, tell) -> None:  # type: ignore[no-untyped-def]
    folder = setup.job.config.checkpoint.export
    newest = newest_whole(setup.job.checkpoints)
    if folder and newest is not None:
        export_checkpoint(newest, Path(folder), architecture=setup.architecture)
        tell(f"exported to {folder}")


@dataclass
class _Measured:
    """One step's numbers, still on the device."""

    step: int
    values: torch.Tensor
    """Loss and gradient norm."""
    lr: float
    seconds: float
    targets: int
    scale: float | None
    skipped: bool
    eval_loss: float | None


class Run:
    """The steps of a run on this rank."""

    def __init__(self, setup: Setup, stop: StopFlag, done: int, tokens: int, first: bool) -> None:
        self.setup, self.stop, self.done, self.first = setup, stop, done, first
        self.tokens = tokens
        """Target tokens of all steps so far."""
        self.stopped: str | None = None
        """Name of the signal that ended the run early."""
        self.last: StepReport | None = None
        self._begun_at = done
        self._saved = done
        self._throughput = Throughput(setup.job.config.metrics.window)
        self._peak = (0.0, "")

    def go(self) -> None:
        """Do the steps that are left; save where the configuration says, and at the end."""
        setup, config = self.setup, self.setup.job.config
        total, every = config.train.steps, config.checkpoint.every
        with self._reporting() as report, setup.store, setup.loader:
            pending: _Measured | None = None
            while self.done < total and not self.stopped:
                measured = self._step()
                if pending is not None:
                    report(pending)  # one step late: reading numbers waits for the device
                pending = measured
                if every and self.done % every == 0:
                    self._save(asynchronous=config.checkpoint.async_)
                if self.stop.agree():
                    self.stopped = self.stop.reason or "another rank's signal"
            if pending is not None:
                report(pending)
            if self._saved != self.done:
                self._save(asynchronous=False)

    def _step(self) -> _Measured:
        begin = time.perf_counter()
        setup, config = self.setup, self.setup.job.config
        batches = setup.own(next(setup.loader))
        targets = setup.target_tokens(setup.loader.counted)
        lr = lr_at(self.done, setup.peak_lr, config.schedule, config.train.steps)
        setup.optimizer.set_lr(lr)
        scale = setup.scaler.scale if setup.scaler else None
        done = update(
            setup.step,
            setup.optimizer,
            batches,
            target_tokens=targets,
            max_norm=config.train.max_norm or None,
            scaler=setup.scaler,
        )
        share = done.share if setup.step.reports else torch.zeros_like(done.share)
        values = torch.stack((share.double(), done.norm.double()))
        dist.all_reduce(values[:1])
        self.done += 1
        self.tokens += targets
        every = config.train.eval_every
        held_out = evaluate(setup) if every and self.done % every == 0 else None
        if self.done == self._begun_at + 1 or self.done % config.train.log_every == 0:
            self._peak = _fullest(setup.device)
        seconds = time.perf_counter() - begin
        return _Measured(self.done, values, lr, seconds, targets, scale, done.skipped, held_out)

    def _save(self, *, asynchronous: bool) -> None:
        setup = self.setup
        state = state_of(setup, self.done, self.tokens)
        setup.store.save(state, setup.step.parallel.parts, setup.optimizer.state_parts(), asynchronous=asynchronous)
        self._saved = self.done

    def _reporting(self) -> _Reporting:
        return _Reporting(self)

    def report_of(self, measured: _Measured) -> StepReport:
        """The step's numbers, read from the device."""
        job = self.setup.job
        tokens = job.workload.tokens
        self._throughput.add(tokens, measured.seconds)
        loss, norm = measured.values.tolist()
        peak = job.peak_flops
        used = mfu(job.model, job.workload, self._throughput.step_seconds, job.ranks, peak) if peak else None
        self.last = StepReport(
            step=measured.step,
            loss=loss,
            grad_norm=norm,
            lr=measured.lr,
            tokens=tokens,
            seconds=measured.seconds,
            tokens_per_second=self._throughput.tokens_per_second,
            memory_bytes=self._peak[0],
            memory_kind=self._peak[1],
            mfu=used,
            target_tokens=measured.targets,
            eval_loss=measured.eval_loss,
            loss_scale=measured.scale,
            skipped=measured.skipped,
        )
        return self.last

    def measurement(self) -> Measurement | None:
        """What the run needed; None where no step was left to do."""
        if self.last is None:
            return None
        return Measurement(
            step_seconds=self._throughput.step_seconds,
            tokens_per_second_per_device=self._throughput.tokens_per_second / self.setup.job.ranks,
            memory_bytes=self._peak[0],
            memory_kind=self._peak[1],
            mfu=self.last.mfu,
        )


class _Reporting:
    """The sinks of the first rank, as a function of one step's numbers; the other ranks' does nothing."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._writer: MetricsWriter | None = None
        self._progress: Progress | None = None

    def __enter__(self) -> _Reporting:
        config, run = self.run.setup.job.config, self.run
        if run.first:
            self._writer = open_metrics(
                run.setup.job.folder, config.metrics, to_table(config), resumed_step=run.done
            )  # fmt: skip
            if config.metrics.progress:
                self._progress = Progress(config.train.steps, config.train.log_every)
        return self

    def __call__(self, measured: _Measured) -> None:
        if self._writer is None:
            return
        report = self.run.report_of(measured)
        self._writer.write(report)
        if self._progress is not None:
            self._progress.show(report)

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.close()
        if self._writer is not None:
            self._writer.close()


def _fullest(device: torch.device) -> tuple[float, str]:
    """Peak memory of the fullest rank, and what the figure is of."""
    used, kind = peak_memory(device)
    peak = torch.tensor(used, dtype=torch.float64, device=device)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    return float(peak), kind
