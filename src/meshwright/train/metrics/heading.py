"""What a run says of itself first: model, work, ranks, layout, and what was chosen because nothing was said."""

from __future__ import annotations

from meshwright.spec.units import count
from meshwright.train.config.job import Job


def heading_lines(job: Job) -> list[str]:
    """The lines above the progress line. The layout here is the one asked for; the loop prints the one that runs."""
    from meshwright.cost.parameters import parameters

    config, work = job.config, job.workload
    where = f"{job.here.gpu or 'GPU'}" if job.device == "cuda" else "CPU"
    ranks = f"{job.ranks} {where} rank{'s' * (job.ranks != 1)} ({job.backend})"
    accumulated = job.micro_batches
    batches = f"{accumulated:,} micro-batch{'es' * (accumulated != 1)} of {job.layout.micro_batch} a data rank"
    lines = [
        f"{job.model.name}, {count(parameters(job.model).total)} parameters, on {ranks}: {job.layout}",
        f"{config.train.steps:,} steps of {work.global_batch:,} × {work.seq_len:,} tokens "
        f"({batches}), {work.precision}, {work.optimizer}, "
        f"{'compiled' if config.train.compile else 'eager'}; data: {', '.join(config.data.sources)}",
        f"folder: {job.folder}",
    ]
    return lines + [f"({note})" for note in job.notes]
