"""Cluster: device, devices a node, nodes, links by tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What a device really reaches, as few constants; fitted on published runs with role `fit`."""

    matmul: float = 0.75
    """Share of peak that large matrix products reach."""
    matmul_fp8: float = 0.6
    """The same for fp8 products, quantisation included."""
    matmul_overhead_s: float = 10e-6
    """Seconds that one product loses to launch, ramp-up and wave tails."""
    matmul_tile: float = 64.0
    """Elements that each dimension of a product is rounded up by: narrow products are slower."""
    misaligned: float = 8.0
    """Slow-down of a product whose inner or outer dimension is no multiple of 8 elements."""
    attention: float = 0.5
    """Share of peak that a fused attention kernel reaches."""
    memory: float = 0.8
    """Share of the memory bandwidth that element-wise kernels reach."""
    link: float = 0.8
    """Share of a link's nominal bandwidth inside a node."""
    network: float = 0.8
    """Share of a NIC's nominal bandwidth between nodes."""
    collective_overhead_s: float = 20e-6
    """Seconds of a collective beside its hops: launch and protocol start."""
    reserved_bytes: float = 1.5 * 2**30
    """Context, NCCL buffers and the like: bytes of the device that no tensor can use."""
    scatter: float = 1.0
    """Seconds of a reduce-scatter relative to an all-gather: 2 where the library sums everywhere, as gloo does."""
    lent: float = 0.0
    """Share of a waiting pipeline rank's time that other ranks of the node make use of: CPU ranks that share cores."""
    fragmentation: float = 0.03
    """Share of the allocated bytes that the allocator loses to fragments."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator."""

    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    peak_flops: Mapping[str, float]
    """Dense peak in FLOP/s by precision (fp32, tf32, fp16, bf16, fp8, fp4)."""
    efficiency: Efficiency = field(default_factory=Efficiency)
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak_flops", MappingProxyType(dict(self.peak_flops)))


@dataclass(frozen=True, slots=True)
class Link:
    """One tier of the network, as one device (or one NIC) sees it, in one direction."""

    name: str
    bytes_per_s: float
    latency_s: float
    source: str = ""
    congestion: float = 0.0
    """Between nodes: a collective over n nodes reaches n to the power of -congestion of the bandwidth."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """`nodes` × `devices_per_node` devices, two tiers of links, and the hosts."""

    name: str
    device: Device
    nodes: int
    devices_per_node: int
    """Devices joined by the fast `intra` link (72 in an NVL72 rack)."""
    intra: Link
    """Inside a node, per device and direction."""
    inter: Link
    """Between nodes, per NIC and direction."""
    nics_per_node: float
    host_memory_bytes: float = 1024 * 2.0**30
    """A node's host memory."""
    host_link: Link = Link("PCIe 4.0 x16", 25e9, 10e-6)
    """Device to host, per device and direction."""
    nvme_bytes_per_s: float = 6e9
    """A node's NVMe bandwidth, reads."""
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """Number of devices in all."""
        return self.nodes * self.devices_per_node

    @property
    def nic_bytes_per_s_per_device(self) -> float:
        """Network bandwidth of a node shared by its devices, per direction."""
        return self.inter.bytes_per_s * self.nics_per_node / self.devices_per_node
