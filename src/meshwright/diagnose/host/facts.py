"""Facts of hosts, gathered line by line."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.diagnose.logs.line import Line

MOST = 4096
"""Records of one kind that are kept."""


@dataclass(frozen=True, slots=True)
class Process:
    """A row of nvidia-smi's process table."""

    line: Line
    gpu: int
    pid: int
    mib: int | None
    """None: the row does not say."""


@dataclass(frozen=True, slots=True)
class Told:
    """A line that names a state of a device, and what it says."""

    line: Line
    what: str
    device: str
    """As the output names it; "" where it does not."""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """One row of `nvidia-smi topo -m`: a GPU and what lies between it and each column."""

    line: Line
    gpu: int
    columns: tuple[tuple[str, str], ...]
    """(column, connection): ("GPU1", "SYS")."""


@dataclass
class Matrix:
    """One matrix of p2pBandwidthLatencyTest, GB/s."""

    line: Line
    direction: str
    enabled: bool
    rows: dict[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass
class Stack:
    """The threads of one process in py-spy's dump."""

    line: Line
    pid: int
    command: str
    threads: list[tuple[str, list[str]]] = field(default_factory=list)
    """(name, frames), the innermost first."""


@dataclass
class Reading:
    """Where a reader is in one file."""

    mode: str = ""
    device: str = ""
    """The GPU that nvidia-smi's lines are about."""
    section: str = ""
    columns: tuple[str, ...] = ()


@dataclass
class HostFacts:
    """Of all hosts."""

    processes: list[Process] = field(default_factory=list)
    faults: list[Told] = field(default_factory=list)
    """Devices that are broken, as nvidia-smi or the kernel say."""
    programs: list[Told] = field(default_factory=list)
    """Xids that a program causes."""
    slowed: list[Told] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    matrices: list[Matrix] = field(default_factory=list)
    bridges: list[Told] = field(default_factory=list)
    """PCIe bridges with ACS on, kernels with an IOMMU that translates."""
    shm: list[tuple[Line, float, float]] = field(default_factory=list)
    """(line, bytes of /dev/shm, share in use)."""
    affinities: list[tuple[Line, int]] = field(default_factory=list)
    """(line, cores that a process may use)."""
    stacks: list[Stack] = field(default_factory=list)
    readings: dict[str, Reading] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
