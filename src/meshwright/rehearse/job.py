"""The Job of a rehearsal: a training job on a cluster that is not here."""

from __future__ import annotations

from dataclasses import replace

from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import RequestError
from meshwright.spec.notation import parse_layout
from meshwright.train.config.devices import is_accelerator
from meshwright.train.config.here import Here
from meshwright.train.config.job import Job
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve

ASKING = ("adafactor", "muon")
"""Optimizers that read numbers of other ranks before their first step (`train.optim.reduce.gather_boxes`)."""


def make_job(
    model: str, cluster: str, layout: str, *, seq_len: int, global_batch: int, precision: str = "bf16",
    optimizer: str = "adamw",
) -> Job:  # fmt: skip
    """The Job that `train` would run if the cluster were here. Raises RequestError with the words of `train` itself."""
    if optimizer in ASKING:
        raise RequestError(
            f"{optimizer} asks the other ranks what they hold, and in a rehearsal none answers.",
            ("adamw", "sgd", "lamb"),
        )
    known = parse_cluster(cluster)
    gpu, ranks = is_accelerator(known.device.name), parse_layout(layout).devices
    flags = {
        "run": "rehearsal", "model": model, "cluster": cluster, "layout": layout, "train.seq_len": str(seq_len),
        "train.global_batch": str(global_batch), "train.precision": precision, "optimizer.name": optimizer,
        "launch.device": "cuda" if gpu else "cpu",
    }  # fmt: skip
    job = resolve(read_config(None, flags), Here(gpus=ranks if gpu else 0, gpu=known.device.name if gpu else ""))
    return replace(job, notes=(*job.notes, *known.warnings))
