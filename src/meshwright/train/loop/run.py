"""One run on one rank, from joining the job to leaving it."""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass

import torch
import torch.distributed as dist

from meshwright.train.config.job import Job
from meshwright.train.launch.process_group import all_here, finalize, initialize
from meshwright.train.launch.recorder import record_collectives
from meshwright.train.launch.signals import StopFlag
from meshwright.train.loop.exporting import Export
from meshwright.train.loop.facts import running_layout
from meshwright.train.loop.report import Reporter
from meshwright.train.loop.setup import Setup, set_up
from meshwright.train.loop.steps import Steps
from meshwright.train.loop.weights import resume, start_weights
from meshwright.train.metrics.heading import heading_lines
from meshwright.train.metrics.logs import set_up_logs
from meshwright.train.metrics.prediction import Measurement, Prediction, comparison_lines, predict, prediction_lines
from meshwright.train.metrics.summary import summary_document, write_summary


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    steps: int
    """Optimizer steps done, those of earlier runs among them."""
    stopped_by: str | None
    """Name of the signal that ended it early."""

    @property
    def exit_code(self) -> int:
        """As in the shell: 128 and the signal's number where the run was asked to stop."""
        if self.stopped_by is None:
            return 0
        return 128 + signal.Signals.__members__.get(self.stopped_by, signal.SIGTERM)


def train(job: Job) -> Outcome:
    """Train `job` as one of its ranks. Raises RequestError where something does not fit, before a step is done."""
    launch = job.config.launch
    record_collectives(job.folder, job.here.place.rank)
    device = initialize(
        job.here.place, device=job.device, backend=job.backend, timeout=launch.timeout_s, threads=launch.threads or None
    )
    all_here(launch.timeout_s)
    outcome = train_here(job, device)
    if dist.get_world_size() > 1:
        dist.barrier()  # nobody closes connections that another one still uses
    finalize()
    return outcome


def train_here(job: Job, device: torch.device) -> Outcome:
    """The same where the process group is there already, and stays."""
    first = job.here.place.rank == 0
    log = set_up_logs(job.folder, job.here.place.rank)
    prediction = predict(job) if first else None
    if prediction is not None:
        for line in [*heading_lines(job), *prediction_lines(job, prediction)]:
            log.info(line)
    with StopFlag() as stop:
        setup = set_up(job, device)
        begun_at = _start(setup, log)
        export = Export(setup, begun_at)
        reporter = Reporter(setup, begun_at)
        steps = Steps(setup, stop, reporter, begun_at)
        steps.go()
        measured = reporter.measurement()
    if steps.stopped:
        log.info(
            f"asked to stop ({steps.stopped}): saved after step {steps.done:,}; the same command goes on from there"
        )
    if prediction is not None:
        _conclude(setup, prediction, reporter, measured, steps, begun_at)
    if not steps.stopped:
        export.write(log)
    return Outcome(steps.done, steps.stopped)


def _start(setup: Setup, log: logging.Logger) -> int:
    """Fill parameters and states, and say what runs; returns the steps that are done already."""
    config = setup.job.config
    newest = setup.store.latest() if config.checkpoint.resume else None
    start_weights(setup, newest)
    state = resume(setup, newest)
    setup.tokens = state.tokens
    log.info(running_layout(setup.step))
    log.info(f"data: {setup.dataset.describe(config.train.steps * config.train.global_batch)}")
    if newest is not None:
        log.info(f"resumed from {newest} at step {state.step:,}")
    elif config.checkpoint.load:
        log.info(f"weights: {config.checkpoint.load}")
    if state.step >= config.train.steps:
        log.info(f"all {config.train.steps:,} steps are done: nothing is left to do")
    else:
        setup.store.check(setup.kept, setup.optimizer.state_parts())
    return state.step


def _conclude(
    setup: Setup, prediction: Prediction, reporter: Reporter, measured: Measurement | None, steps: Steps, begun_at: int
) -> None:
    """The first rank's last words: prediction beside measurement, and the summary."""
    log, job = logging.getLogger("meshwright"), setup.job
    if measured is not None:
        for line in comparison_lines(prediction, measured):
            log.info(line)
    document = summary_document(
        job,
        prediction,
        measured,
        reporter.last,
        layout_run=running_layout(setup.step),
        first_step=begun_at,
        stopped_by=steps.stopped,
    )
    write_summary(job.folder, document)
