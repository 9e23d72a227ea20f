"""From a configuration to a Job: open choices are made and told, what no run could be is refused.

All of it before any process starts, and without torch unless the machine has GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.rules.rule import divisors
from meshwright.spec.workload import Workload, make_workload
from meshwright.train.config.devices import cluster_of_gpus, is_accelerator
from meshwright.train.config.here import Here, look
from meshwright.train.config.job import Job
from meshwright.train.config.models import model_to_train
from meshwright.train.config.tree import TrainConfig
from meshwright.train.config.values import ConfigError
from meshwright.train.launch.environment import check_devices, check_world, fitting_layouts

CPU_RANKS = 2
"""Ranks of a run on CPUs that says nothing: the smallest number that is parallel."""
MICRO_BATCH_TOKENS = 4096
"""Tokens of a micro-batch of a run that says nothing, at most: enough to keep a device busy, in little memory."""


def resolve(config: TrainConfig, here: Here | None = None) -> Job:
    """The Job that a configuration stands for on this machine (`here`: facts, looked up if not given).

    Raises RequestError: an unknown model, an illegal layout, a world of another size, options that exclude each other.
    """
    from meshwright.train.config.legality import check_runs
    from meshwright.train.config.sense import check_sense

    here = look(config.launch.device) if here is None else here
    device = _device(config, here)
    model = model_to_train(config.model)
    workload = workload_of(config, model)
    layout, notes = _layout(config, here, device)
    _check_ranks(layout, config, here, device)
    named = _named_cluster(config, here, layout, device)
    if named is not None and device == "cpu" and not is_accelerator(named.device.name):
        workload = replace(workload, implementation="host")
    ranks = named or rules_cluster(layout.devices)
    check_runs(model, ranks, workload, layout)
    check_sense(config, model, layout)
    folder = config.run or str(Path("runs") / model.name)
    resolved = replace(config, layout=str(layout), run=folder)
    job = Job(resolved, model, layout, workload, here, device, named, notes)
    if config.parallel.schedule_csv:
        from meshwright.modes.schedule_file import read_schedule_table

        read_schedule_table(config.parallel.schedule_csv, layout, job.micro_batches)
    return job


def workload_of(config: TrainConfig, model: Model) -> Workload:
    """The Workload that the cost model prices. Parameters are kept in fp32 and computed with in the run's precision."""
    precision = config.train.precision
    return make_workload(
        config.train.seq_len,
        config.train.global_batch,
        precision=precision,
        optimizer=config.optimizer.name,
        states="mixed" if precision == "fp32" else "fp32-shards",
        causal=model.causal,
        implementation="compiled" if config.train.compile else "eager",
    )


def rules_cluster(ranks: int) -> Cluster:
    """A stand-in of so many ranks for the rules of layouts, where no cluster is named; nothing is priced on it."""
    cpu = parse_cluster("1xcpu")
    return replace(cpu, name=f"this run of {ranks} rank{'s' * (ranks != 1)}", nodes=1, devices_per_node=ranks)


def _device(config: TrainConfig, here: Here) -> str:
    asked = config.launch.device
    if asked == "cuda" and not here.gpus:
        raise ConfigError("launch.device is 'cuda', and PyTorch sees no GPU here.", ("cpu", "auto"))
    device = asked if asked != "auto" else ("cuda" if here.gpus else "cpu")
    if device == "cpu" and config.launch.backend == "nccl":
        raise ConfigError("launch.backend is 'nccl', which has no collectives for CPUs.", ("gloo", "auto"))
    return device


def _layout(config: TrainConfig, here: Here, device: str) -> tuple[Layout, tuple[str, ...]]:
    """The layout that is asked for, or data parallelism over what is here, with a note that says so."""
    from meshwright.spec.notation import parse_layout

    if config.layout:
        return parse_layout(config.layout), ()
    batch, asked = config.train.global_batch, config.launch.ranks
    if here.started:
        count, why = here.place.world_size, f"the ranks that {here.place.launcher} started"
    elif asked:
        count, why = asked, "launch.ranks"
    elif device == "cuda":
        count = max(n for n in range(1, here.gpus + 1) if batch % n == 0)
        why = f"the GPUs here: {here.gpus}" + (f", of which {count} share a batch of {batch}" * (count < here.gpus))
    else:
        count, why = CPU_RANKS if batch % CPU_RANKS == 0 else 1, "CPU"
    layout = replace(parse_layout(f"ddp{count}"), micro_batch=_micro_batch(batch // count, config.train.seq_len))
    return layout, (f"no layout given: {layout} ({why})",)


def _micro_batch(sequences: int, seq_len: int) -> int:
    """The largest part of a rank's sequences that is at most MICRO_BATCH_TOKENS long."""
    fitting = [n for n in divisors(sequences) if n * seq_len <= MICRO_BATCH_TOKENS] if sequences else []
    return max(fitting, default=1)


def _check_ranks(layout: Layout, config: TrainConfig, here: Here, device: str) -> None:
    """Raises ConfigError where the layout has another number of ranks than there are or were asked for."""
    need, asked = layout.devices, config.launch.ranks
    if here.started:
        check_world(here.place, layout)
    if asked and asked != need:
        raise ConfigError(
            f"{layout} needs {need} rank{'s' * (need != 1)}, launch.ranks is {asked}.", (f"--launch.ranks {need}",)
        )
    if not here.started and device == "cuda" and need > here.gpus:
        raise ConfigError(
            f"{layout} needs {need} GPUs, this machine has {here.gpus}.",
            [*map(str, fitting_layouts(layout, here.gpus)), "torchrun over several machines", "--launch.device cpu"],
        )


def _named_cluster(config: TrainConfig, here: Here, layout: Layout, device: str) -> Cluster | None:
    """What the run is priced on. Raises RequestError where the cluster that is named has too few devices."""
    need = layout.devices
    if config.cluster:
        cluster = parse_cluster(config.cluster)
        return cluster if cluster.devices == need else _cut(cluster, layout)
    if device != "cuda":
        return None
    return cluster_of_gpus(here.gpu, need, here.place.local_world_size if here.started else need)


def _cut(cluster: Cluster, layout: Layout) -> Cluster:
    """As many devices of the cluster as the layout needs: some of one node, or whole nodes."""
    need, per_node = layout.devices, cluster.devices_per_node
    check_devices(layout, cluster)
    if need > per_node and need % per_node:
        raise ConfigError(f"The {need} ranks of {layout} do not fill nodes of {per_node} ({cluster.name}).")
    name = f"{need} of {cluster.name}"
    return replace(cluster, name=name, nodes=max(need // per_node, 1), devices_per_node=min(need, per_node))
