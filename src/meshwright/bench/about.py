"""What a bench says of itself: the work that all rows share, and what it ran on."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from meshwright.cost.parameters import parameters
from meshwright.train.config.job import Job


def work_of(job: Job, steps: int, warm_up: int, repeats: int) -> dict[str, Any]:
    """Model, sequence length, batch, precision, optimizer; steps timed, before them, and how often."""
    return {
        "model": job.model.name,
        "parameters": parameters(job.model).total,
        "seq_len": job.workload.seq_len,
        "global_batch": job.workload.global_batch,
        "tokens_per_step": job.workload.tokens,
        "precision": job.workload.precision,
        "optimizer": job.config.optimizer.name,
        "steps": steps,
        "warm_up": warm_up,
        "repeats": repeats,
    }


def machine_of(job: Job) -> dict[str, Any]:
    """Device, backend, ranks and nodes of the largest job, PyTorch's version, cluster of the predictions."""
    place, ranks = job.here.place, job.ranks
    return {
        "device": job.here.gpu if job.device == "cuda" else "CPU",
        "backend": job.backend,
        "ranks": ranks,
        "nodes": max(ranks // place.local_world_size, 1) if job.here.started else 1,
        "torch": version("torch"),
        "cluster": job.cluster.name if job.cluster else "",
    }
