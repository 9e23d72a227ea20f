"""A real step on gloo ranks, with what PyTorch's allocator and process groups did in it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from meshwright.bench.meter import allocations, peak
from meshwright.modes.mesh import make_mesh
from meshwright.modes.record import Recorder
from meshwright.rehearse.job import make_job
from meshwright.train.batch import Batch
from meshwright.train.config.job import Job
from meshwright.train.optim.optimizer import make_optimizer
from meshwright.train.program import architecture_of, step_of
from meshwright.train.update import update

STEPS = 2


def job_of(model: str, layout: str, seq_len: int, global_batch: int, precision: str) -> Job:
    """On as many CPUs as the layout needs."""
    return make_job(model, "8xcpu", layout, seq_len=seq_len, global_batch=global_batch, precision=precision)


def real_step(*what: Any) -> tuple[float, tuple[str, ...]]:
    """Peak bytes of two steps, and the collectives of the second; gloo's own staging buffers are left out."""
    job = job_of(*what)
    mesh = make_mesh(job.layout)
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step = step_of(job, architecture_of(job), mesh, lambda name, cut, tensor: None)
        with torch.no_grad():
            for part in step.parallel.parts:
                part.data.normal_(0.0, 0.02)
        optimizer = make_optimizer(step.parallel.parts, job.config.optimizer)
        record = Recorder(mesh)
        for number in range(STEPS):
            batches = [_batch(job) for _ in range(job.micro_batches)]
            if number == STEPS - 1:
                record.__enter__()
            update(step, optimizer, batches, target_tokens=job.workload.tokens, max_norm=1.0)
        record.__exit__(None, None, None)
    events = profiled.profiler.kineto_results.experimental_event_tree()
    log = tuple(f"{e.axis} {e.collective} {e.bytes}" for e in record.entries if e.ranks > 1)
    return peak(allocations(events, without=("c10d::", "gloo:"))), log


def _batch(job: Job) -> Batch:
    shape = job.layout.micro_batch, job.workload.seq_len // job.layout.context
    tokens = torch.randint(job.model.vocab, shape)
    return Batch(tokens, tokens.clone(), torch.arange(shape[1]).expand(shape).contiguous())
