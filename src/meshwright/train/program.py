"""The program of a Job on one rank: its model, the knobs of the modes, and one training step."""

from __future__ import annotations

from dataclasses import replace

import torch

from meshwright.modes.cuts import Initialise
from meshwright.modes.mesh import Mesh
from meshwright.modes.options import Options
from meshwright.modes.schedule_file import read_schedule_table
from meshwright.train.assemble import assemble
from meshwright.train.config.job import Job
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.build import load_architecture
from meshwright.train.step import Step

NARROW = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def options_of(job: Job) -> Options:
    """The modes' knobs as the configuration turns them."""
    parallel, narrow = job.config.parallel, NARROW[job.config.train.precision]
    return Options(
        dtype=narrow,
        reduce_dtype=torch.float32 if narrow is not None else None,
        bucket_mb=parallel.bucket_mb,
        static_graph=parallel.static_graph,
        find_unused=parallel.find_unused,
        prefetch=parallel.prefetch,
        rate_limit=parallel.rate_limit,
        compile=job.config.train.compile,
        schedule_table=parallel.schedule_csv or None,
    )


def step_of(job: Job, architecture: Architecture, mesh: Mesh, initialise: Initialise | None = None) -> Step:
    """The job's step on this rank; fresh weights unless `initialise` gives them."""
    table = job.config.parallel.schedule_csv
    places = read_schedule_table(table, job.layout, job.micro_batches) if table else None
    return assemble(architecture, mesh, options_of(job), seed=job.config.seed, places=places, initialise=initialise)


def architecture_of(job: Job) -> Architecture:
    """The model with what the configuration says of its experts."""
    architecture, parallel = load_architecture(job.config.model), job.config.parallel
    if parallel.capacity is not None:
        architecture = replace(architecture, capacity_factor=parallel.capacity or None)
    if parallel.aux_coefficient is not None:
        architecture = replace(architecture, balance_coefficient=parallel.aux_coefficient)
    return architecture
