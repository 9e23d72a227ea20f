"""Session: one rank's part of `comms`, from joining the others to leaving them."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.bench.comms.cluster_file import measured_cluster
from meshwright.bench.comms.fit import fit_tiers
from meshwright.bench.comms.lines import Own, lines_of_layout, lines_of_nodes
from meshwright.bench.comms.measure import Effort, measure
from meshwright.bench.comms.operations import sizes
from meshwright.bench.comms.result import Machine, TierFit
from meshwright.spec.cluster_catalog import catalogue_name
from meshwright.spec.collective import Row
from meshwright.spec.layout import Layout
from meshwright.train.launch.environment import Place, check_world
from meshwright.train.launch.process_group import finalize, initialize

if TYPE_CHECKING:
    from collections.abc import Iterator

CPUINFO = Path("/proc/cpuinfo")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What to measure."""

    layout: Layout | None
    """Whose axes; None: all ranks together, and by node."""
    operations: tuple[str, ...]
    least_bytes: int
    most_bytes: int | None
    """None: 1 GiB on GPUs, 16 MiB on CPUs."""
    effort: Effort
    device: str = "auto"
    backend: str = "auto"
    timeout_s: float = 600.0


SCATTER = {"gloo": 2.0}
"""`Efficiency.scatter` of libraries whose reduce-scatter is an all-reduce of which each rank keeps its part."""
MOST_BYTES = {"cuda": 2**30, "cpu": 2**24}


@dataclass(frozen=True, slots=True)
class Found:
    """What one session measured."""

    machine: Machine
    rows: tuple[Row, ...]
    fits: tuple[TierFit, ...]


@contextmanager
def joined(place: Place, wish: Wish) -> Iterator[torch.device]:
    """Inside the process group of all ranks. Raises RequestError for ranks that do not match the layout."""
    if wish.layout is not None:
        check_world(place, wish.layout)
    device = initialize(place, device=wish.device, backend=wish.backend, timeout=wish.timeout_s)
    yield device
    if dist.get_world_size() > 1:
        dist.barrier()
    finalize()


def run(place: Place, wish: Wish, device: torch.device, progress: Progress, writes: bool = False) -> Found:
    """Measure and fit, in a process group that is there; every rank gets the same.

    Where the catalogue's device is to be written (`writes`), raises ClusterError before measuring if there is none.
    """
    nodes = _nodes(place)
    machine = describe(nodes, device)
    if writes:
        measured_cluster(machine, (), None)
    if dist.get_world_size() == 1:
        return Found(machine, (), ())
    lines: list[Own] = lines_of_layout(wish.layout, nodes, device) if wish.layout else lines_of_nodes(nodes)
    wanted = sizes(wish.least_bytes, wish.most_bytes or MOST_BYTES[device.type])
    rows = measure(lines, wish.operations, wanted, wish.effort, device, progress)
    return Found(machine, tuple(rows), fit_tiers(rows, machine.ranks_per_node, SCATTER.get(machine.backend, 1.0)))


def describe(nodes: Sequence[int], device: torch.device) -> Machine:
    """The machine that these ranks are on."""
    backend = str(dist.get_backend_config()).split(f"{device.type}:")[-1].split(",")[0]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    world, count = len(nodes), len(set(nodes))
    where = f"{world} ranks on {count} node{'s' * (count > 1)}"
    source = f"{where}, {backend}, PyTorch {torch.__version__}, {datetime.now(UTC):%Y-%m-%d}"
    known = (catalogue_name(name) or "") if device.type == "cuda" else "cpu"
    return Machine(world, count, name, known, backend, source)


def cpu_name() -> str:
    """The CPU's name as the system has it."""
    try:
        for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "cpu"


def _nodes(place: Place) -> list[int]:
    """The node of every rank."""
    everyone = [0] * dist.get_world_size()
    dist.all_gather_object(everyone, place.node)
    return everyone
