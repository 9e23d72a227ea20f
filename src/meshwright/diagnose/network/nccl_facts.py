"""Facts of NCCL_DEBUG=INFO and WARN lines (NCCL, RCCL and their network plug-ins)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from meshwright.diagnose.logs.line import Line

MOST = 2048
"""Lines of a kind that are kept."""
IB, SOCKET, OFI, OTHER = "IB", "Socket", "OFI", "other"


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface that NCCL chose for sockets."""

    line: Line
    host: str
    name: str
    address: str
    data: bool
    """True: `NET/Socket`, which carries tensors; False: `Bootstrap`, which only connects."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A transfer that an InfiniBand or RoCE device gave up."""

    line: Line
    host: str
    peer: str
    status: int
    """12: retries exceeded, no answer; 5: flushed after an earlier error of the same connection (ibv_wc_status)."""
    vendor: int | None
    hca: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Shared memory that could not be made."""

    line: Line
    bytes: int | None


@dataclass
class Nccl:
    """All of one job."""

    version: str = ""
    ranks: int = 0
    told_nodes: int = 0
    """As a line says; 0: none does."""
    hosts: dict[str, None] = field(default_factory=dict)
    networks: dict[str, dict[str, Line]] = field(default_factory=dict)
    """First line of each network and host: `Using network X`."""
    absent: dict[str, Line] = field(default_factory=dict)
    """`No device found`, by host."""
    found: dict[str, Line] = field(default_factory=dict)
    """`NET/IB : Using …`, by host."""
    interfaces: list[Interface] = field(default_factory=list)
    set_by_environment: dict[str, tuple[str, Line]] = field(default_factory=dict)
    channels: Counter[str] = field(default_factory=Counter)
    """`NET/IB`, `NET/IB/GDRDMA`, `NET/Socket`, `P2P`, `SHM`, …: how many."""
    channel_lines: dict[str, Line] = field(default_factory=dict)
    gdr_flags: dict[bool, Line] = field(default_factory=dict)
    """`GDR 0` and `GDR 1`."""
    gdr_refused: list[Line] = field(default_factory=list)
    """`GPU Direct RDMA Disabled for HCA …`: by the driver, for all GPUs."""
    gdr_allowed: int = 0
    """`GPU Direct RDMA Enabled for …`."""
    efa_refused: Line | None = None
    providers: dict[str, Line] = field(default_factory=dict)
    """Of the OFI plug-in."""
    p2p_refused: list[Line] = field(default_factory=list)
    iommu: Line | None = None
    completions: list[Completion] = field(default_factory=list)
    events: list[tuple[str, str, Line]] = field(default_factory=list)
    """Asynchronous events of a device: HCA, event."""
    segments: list[Segment] = field(default_factory=list)
    lines: int = 0

    @property
    def nodes(self) -> int:
        """Nodes of the job as far as its lines tell; 1 where only one speaks and no number is told."""
        return max(self.told_nodes, len(self.hosts), 1)
