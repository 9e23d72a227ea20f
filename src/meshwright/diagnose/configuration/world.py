"""The ranks of a job, its layout, its nodes and its devices.

Megatron-LM and torchtitan: world = tensor × pipeline × context × data. torchrun, srun: processes a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.diagnose.configuration.legal import common, listed, neighbours
from meshwright.diagnose.configuration.settings import Job, Setting
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Finding

PRIVILEGED = 1024
"""Ports below are for root only (POSIX systems)."""
SMALL_BUCKET = 10.0
"""MB. An all-reduce of less is bound by latency on links between nodes (PyTorch issue #118421 calls 25 small)."""
DEFAULT_BUCKET = 25.0
"""MB: PyTorch's own."""


def world(job: Job) -> Iterator[Finding]:
    """The layout fills the world."""
    total, model = job.world, job.model_ranks
    replicas = job.number("dp") or job.number("dp_shard") * max(job.number("dp_replicate"), 1)
    names = ("world", "nodes", "nproc", "per_node", "tp", "pp", "cp", "dp", "dp_shard", "dp_replicate")
    if not total or (model == 1 and not job.number("dp_shard")):
        return
    if total % model:
        tp, rest = job.number("tp") or 1, model // (job.number("tp") or 1)
        legal = [one for one in common(total) if total % (one * rest) == 0]
        advice = [f"Use a multiple of {model} ranks: {listed(neighbours(total, model))}."]
        if legal and tp > 1:
            advice.append(f"Or, with the other degrees as they are, a tensor degree of {listed(legal)}.")
        text = f"{total} ranks cannot hold copies of a model over {model} (tensor × pipeline × context"
        text += f"): {total} is no multiple of {model}." if total > model else "): none is whole, and dp would be 0."
        confidence = CERTAIN if job.is_told(*names) else LIKELY
        yield Finding(
            "world_size_layout", ERROR, confidence, (), text, job.evidence(*names), change=tuple(advice), weight=1
        )
    elif replicas and replicas * model != total and not job.number("ulysses") and "dp_shard" in job.settings:
        yield Finding(
            "world_size_layout", ERROR, CERTAIN if job.is_told(*names) else LIKELY, (),
            f"The degrees multiply to {replicas * model} (data {replicas} × model {model}) and there are {total} "
            f"ranks.",
            job.evidence(*names), change=(f"Take a data-parallel degree of {total // model}, or -1 for what is left.",),
        )  # fmt: skip


def devices(job: Job) -> Iterator[Finding]:
    """Not more processes than devices."""
    nproc, nodes = job.number("nproc") or job.number("tasks_per_node"), max(job.number("nodes"), 1)
    visible = job.number("visible")
    have = visible or job.number("per_node") or (job.number("world") // nodes if "nproc" in job.settings else 0)
    if nproc and have and nproc > have:
        sure = job.is_told("nproc", "visible", "world", "per_node")
        yield Finding(
            "device_mapping", ERROR, CERTAIN if sure else LIKELY, (),
            f"{nproc} processes are started on a node, and {have} GPU{'s are' if have > 1 else ' is'} there: "
            "several ranks would use the same.",
            job.evidence("nproc", "tasks_per_node", "visible", "per_node", "world"),
            "Run nvidia-smi -L in the job and print torch.cuda.device_count().",
            (f"Start {have} processes (--nproc-per-node {have}).",), weight=1,
        )  # fmt: skip


def port(job: Job) -> Iterator[Finding]:
    """A port that the job may use."""
    number = job.number("port")
    if 0 < number < PRIVILEGED or number > 65535:
        why = f"lies below {PRIVILEGED}, where only root may listen" if number < PRIVILEGED else "is no port"
        yield Finding(
            "port_in_use", WARNING, POSSIBLE, (), f"The master port {number} {why}.", job.evidence("port"),
            "See which program listens there (ss -ltnp).",
            ("Set MASTER_PORT to a free port from 20000 to 60000, or use --rdzv-endpoint=localhost:0.",),
        )  # fmt: skip


def double_launch(launch: Setting) -> Finding:
    """srun or mpirun start one launcher a node, not one a rank (torch/distributed/run.py; Slurm's srun)."""
    return Finding(
        "port_in_use", WARNING, LIKELY, (),
        f"The job is launched twice over: {launch.value} tasks each start a launcher that binds the same port and "
        "starts all ranks again.",
        (launch.evidence(),), "Count the processes of the script on a node.",
        ("Start one launcher a node (srun --ntasks-per-node=1 torchrun …), or leave the launcher out.",), weight=1,
    )  # fmt: skip


RACK = re.compile(r"\b(?:GB200|GB300|NVL72|NVL36)\b")
"""Devices whose NVLink spans hosts: tensor parallelism over them stays inside (NVIDIA GB200 NVL72 data sheet)."""


@dataclass
class Devices:
    """What lines say of the devices."""

    rack: bool = False


def across_nodes(job: Job) -> Iterator[Finding]:
    """Tensor parallelism beyond the links within a node, and ZeRO-3 that gathers over nodes."""
    tp, local, nodes = job.number("tp"), job.local, job.number("nodes")
    if nodes < 2 and local and job.world > local:
        nodes = -(-job.world // local)
    if local and nodes > 1 and tp > local:
        yield Finding(
            "tp_comm_bound", WARNING, POSSIBLE, (),
            f"{tp} tensor-parallel ranks span nodes of {local} GPUs: every layer's all-reduces cross the network.",
            job.evidence("tp", "nproc", "per_node", "nodes", "world"),
            "Compare the time of all-reduces within a layer with its computation, in a trace.",
            (f"Keep the tensor degree at {local} or less, and put pipeline or data parallelism across nodes.",),
        )  # fmt: skip
    if job.number("zero") == 3 and nodes > 1 and not job.number("hpz"):
        yield Finding(
            "zero3_internode", INFO, POSSIBLE, (),
            f"ZeRO-3 over {nodes} nodes gathers every layer's parameters across the network in each micro-step.",
            job.evidence("zero", "nodes", "world", "nproc"), "Compare the step time on one node and on two.",
            ("Where links between nodes are slow: zero_hpz_partition_size = GPUs a node, hybrid sharding, or ZeRO-2.",),
        )  # fmt: skip


def buckets(job: Job) -> Iterator[Finding]:
    """Gradient buckets that are worth a message."""
    size = job.settings.get("bucket_size")
    if size is not None and (size.value is True or (size.value == 1 and not isinstance(size.value, bool))):
        yield Finding(
            "small_messages", ERROR, CERTAIN, (),
            "bucket_size is a truth and counts as 1: every bucket holds one element, so each parameter's gradient is a "
            "message of its own.",
            (size.evidence(),), change=("Set bucket_size=None (Megatron-LM: max(40e6, 1e6 × dp) elements).",), weight=2,
        )  # fmt: skip
    told = job.settings.get("bucket_mb")
    if told is None or isinstance(told.value, bool) or not 0 < told.value <= DEFAULT_BUCKET or job.number("nodes") < 2:
        return
    small = told.value < SMALL_BUCKET
    yield Finding(
        "small_messages", WARNING if small else INFO, POSSIBLE, (),
        f"Gradient buckets of {told.value:g} MB are small for {job.number('nodes')} nodes: their all-reduces are "
        f"bound by "
        "latency.",
        job.evidence("bucket_mb", "nodes"), "See the sizes and bandwidths of all-reduces in a trace.",
        ("Raise bucket_cap_mb to 100 or more, and see that the first all-reduce still overlaps.",),
    )  # fmt: skip
