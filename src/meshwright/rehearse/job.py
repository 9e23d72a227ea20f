"""The Job of a rehearsal: a training job on a cluster that is not here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import ClusterError, RequestError
from meshwright.spec.notation import parse_layout
from meshwright.train.config.devices import is_accelerator
from meshwright.train.config.here import Here
from meshwright.train.config.job import Job
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve

ASKING = ("adafactor", "muon")
"""Optimizers that read numbers of other ranks before their first step (`train.optim.reduce.gather_boxes`)."""


def make_job(flags: Mapping[str, str]) -> Job:
    """The Job that `train` would run with these flags (as `--train.seq_len 4096`) if the cluster were here.

    `layout` and `cluster` are required. Raises RequestError with the words of the program itself.
    """
    layout, cluster = parse_layout(flags["layout"]), parse_cluster(flags["cluster"])
    if layout.devices > cluster.devices:
        raise ClusterError(
            f"{layout} needs {layout.devices} devices, {cluster.name} has {cluster.devices}.",
            [f"a cluster of {layout.devices}"],
        )
    optimizer = flags.get("optimizer.name", "adamw")
    if optimizer in ASKING:
        raise RequestError(
            f"{optimizer} asks the other ranks what they hold, and in a rehearsal none answers.",
            ("adamw", "sgd", "lamb"),
        )
    gpu = is_accelerator(cluster.device.name)
    here = Here(gpus=layout.devices if gpu else 0, gpu=cluster.device.name if gpu else "")
    device = {"launch.device": "cuda" if gpu else "cpu"}
    job = resolve(read_config(None, {**flags, **device, "run": "rehearsal"}), here)
    return replace(job, notes=(*job.notes, *cluster.warnings))
