"""Place: which rank this process is, read from what torchrun, Slurm or `launch_local` has set.

Under torchrun (and `launch_local`): RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
GROUP_RANK. Under srun: SLURM_PROCID, SLURM_STEP_NUM_TASKS (SLURM_NTASKS), SLURM_LOCALID, SLURM_NODEID,
SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE; MASTER_ADDR and MASTER_PORT are taken where they are set. Where
torchrun runs inside Slurm, torchrun counts. Nothing here imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from meshwright.spec.cluster import Cluster
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.rules.nearby import refilled
from meshwright.train.launch.errors import LaunchError
from meshwright.train.launch.nodelist import first_host, tasks_of_node

Launcher = Literal["torchrun", "slurm", "local", "single"]

LAUNCHER = "MESHWRIGHT_LAUNCHER"
"""Set to "local" for the ranks of `launch_local`."""
LOG_DIR = "MESHWRIGHT_LOG_DIR"
"""Where these ranks leave their errors for the launcher."""
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LOCALHOST = "127.0.0.1"
PORTS = range(15_000, 32_000)
"""Ports that Slurm jobs choose from: below those that Linux hands out by itself."""


@dataclass(frozen=True)
class Place:
    """This process among all ranks."""

    rank: int
    world_size: int
    local_rank: int
    """Among the ranks of this node."""
    local_world_size: int
    """Ranks on this node."""
    node: int
    address: str
    """Host of rank 0."""
    port: int
    launcher: Launcher
    """Who started the ranks; "single": nobody, this process is alone."""


ALONE = Place(0, 1, 0, 1, 0, LOCALHOST, 0, "single")


def read_place(environment: Mapping[str, str] = os.environ) -> Place:
    """This process's place. Raises LaunchError: which variable is wrong, and what is legal."""
    if "RANK" in environment:
        return _torchrun(environment)
    # sbatch's script itself has SLURM_PROCID, too; only srun describes a step.
    if "SLURM_PROCID" in environment and "SLURM_STEP_NODELIST" in environment:
        place = _slurm(environment)
        return ALONE if place.world_size == 1 else place
    if "SLURM_PROCID" in environment and _number(environment, "SLURM_NTASKS", 1, default=1) > 1:
        raise LaunchError(
            f"This is the batch script itself, which Slurm runs once, but the job has SLURM_NTASKS="
            f"{environment['SLURM_NTASKS']}. Start the ranks with `srun meshwright train …`."
        )
    _no_other_launcher(environment)
    return ALONE


def check_world(place: Place, layout: Layout) -> None:
    """Raises LaunchError, naming layouts that would fit, unless there are as many ranks as `layout` needs."""
    if place.world_size == layout.devices:
        return
    world = place.world_size
    fitting = [f"{layout.devices} ranks", *(f"layout '{one}'" for one in fitting_layouts(layout, world))]
    started = {"torchrun": "torchrun started", "slurm": "Slurm started"}.get(place.launcher, "there are")
    ranks = "rank" if world == 1 else "ranks"
    raise LaunchError(f"The layout '{layout}' needs {layout.devices} ranks, {started} {world} {ranks}.", fitting)


def check_devices(layout: Layout, cluster: Cluster) -> None:
    """Raises LayoutError where the cluster has too few devices, with layouts that fill it."""
    need = layout.devices
    if need > cluster.devices:
        fitting = [str(other) for other in fitting_layouts(layout, cluster.devices)]
        raise LayoutError(
            f"{layout} needs {need} devices, {cluster.name} has {cluster.devices}.",
            [*fitting, f"a cluster of {need} devices"],
        )


def fitting_layouts(layout: Layout, world: int, most: int = 3) -> list[Layout]:
    """Layouts of `world` ranks like `layout`: those that keep most of its axes first, data-parallel ranks fill up."""
    axes = [axis for axis in ("context", "tensor", "pipeline") if getattr(layout, axis) > 1]
    found: list[Layout] = []
    for dropped in range(len(axes) + 1):
        for names in combinations(axes, dropped):
            kept = _without(layout, names)
            data, left = divmod(world, kept.context * kept.tensor * kept.pipeline)
            if data and not left:
                found.append(_with_experts(refilled(kept, data)))
    return list(dict.fromkeys(found))[:most]


def _without(layout: Layout, axes: tuple[str, ...]) -> Layout:
    kept: Layout = replace(layout, **dict.fromkeys(axes, 1))  # type: ignore[arg-type]
    return replace(kept, schedule="1f1b", virtual_stages=1, stage_layers=()) if "pipeline" in axes else kept


def _with_experts(layout: Layout) -> Layout:
    """Expert ranks stay where they divide a stage's ranks."""
    return layout if layout.devices // layout.pipeline % layout.expert == 0 else replace(layout, expert=1)


def _torchrun(environment: Mapping[str, str]) -> Place:
    missing = [name for name in TORCHRUN if name not in environment]
    if missing:
        raise LaunchError(f"RANK is set, but not {', '.join(missing)}. torchrun sets all of {', '.join(TORCHRUN)}.")
    world = _number(environment, "WORLD_SIZE", 1)
    rank = _number(environment, "RANK", 0, world, "WORLD_SIZE")
    local_world = _number(environment, "LOCAL_WORLD_SIZE", 1, world + 1, "WORLD_SIZE + 1")
    local_rank = _number(environment, "LOCAL_RANK", 0, local_world, "LOCAL_WORLD_SIZE")
    node = _number(environment, "GROUP_RANK", 0, default=rank // local_world)
    launcher: Launcher = "local" if environment.get(LAUNCHER) == "local" else "torchrun"
    return Place(rank, world, local_rank, local_world, node, environment["MASTER_ADDR"], _port(environment), launcher)


def _slurm(environment: Mapping[str, str]) -> Place:
    count = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"
    world = _number(environment, count, 1)
    rank = _number(environment, "SLURM_PROCID", 0, world, count)
    node = _number(environment, "SLURM_NODEID", 0, default=0)
    tasks = "SLURM_STEP_TASKS_PER_NODE"
    local_world = tasks_of_node(environment[tasks], node) if tasks in environment else world
    local_rank = _number(environment, "SLURM_LOCALID", 0, local_world, tasks)
    address = environment.get("MASTER_ADDR") or first_host(environment["SLURM_STEP_NODELIST"])
    if "MASTER_PORT" in environment:
        port = _port(environment)
    else:
        # Every rank finds the same port, and two steps of a node two different ones.
        job, step = (_number(environment, name, 0, default=0) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        port = PORTS[(31 * job + step) % len(PORTS)]
    return Place(rank, world, local_rank, local_world, node, address, port, "slurm")


def _no_other_launcher(environment: Mapping[str, str]) -> None:
    """Refuse what looks like one of many processes, but is none of torchrun's or Slurm's."""
    for name in ("WORLD_SIZE", "LOCAL_RANK"):
        if name in environment:
            raise LaunchError(f"{name} is set, but RANK is not. torchrun sets all of {', '.join(TORCHRUN)}.")
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if _number(environment, name, 1, default=1) > 1:
            raise LaunchError(f"{name}={environment[name]}: ranks started by mpirun are not told apart.", _STARTERS)


_STARTERS = ("torchrun --nproc-per-node N -m -- meshwright train …", "srun meshwright train …", "meshwright train …")


def _port(environment: Mapping[str, str]) -> int:
    return _number(environment, "MASTER_PORT", 1, 65_536)


def _number(
    environment: Mapping[str, str],
    name: str,
    least: int,
    end: int | None = None,
    end_name: str = "",
    *,
    default: int | None = None,
) -> int:
    """A whole number of at least `least` and below `end`."""
    text = environment.get(name)
    if text is None:
        if default is None:
            raise LaunchError(f"{name} is not set, though this is one of several ranks.")
        return default
    legal = f"{least} to {end - 1}" + (f" (below {end_name})" if end_name else "") if end else f"{least} or more"
    if not text.isascii() or not text.isdecimal():
        raise LaunchError(f"{name}={text!r} is not a whole number.", (legal,))
    value = int(text)
    if value < least or (end is not None and value >= end):
        raise LaunchError(f"{name}={value} cannot be.", (legal,))
    return value
