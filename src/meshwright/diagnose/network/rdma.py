"""Rules on what bypasses the host: GPUDirect RDMA between nodes, peer-to-peer inside one, shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.network.nccl_facts import Nccl
from meshwright.spec.units import binary

GDR = (
    "Load nvidia-peermem (nv_peer_mem on old drivers) on every node, or use a kernel with DMA-BUF.",
    "Put the NIC and its GPU under one PCIe switch, and turn ACS off there.",
    "The log must then say via NET/IB/n/GDRDMA.",
)
ACS = (
    "Turn PCIe ACS off on the bridges, and boot with iommu=pt or without an IOMMU.",
    "NCCL_P2P_DISABLE=1 only for the time being: it hides the fault and costs bandwidth.",
)
DOCKER_SHM = 64 * 2**20
"""Bytes of /dev/shm that a Docker container has without --shm-size (Docker's documentation)."""


def find_bypass(facts: Facts) -> list[Finding]:
    """What goes through the host's memory and need not."""
    known = facts.of(Nccl)
    return [*_gdr(known), *_iommu(known), *_p2p(known), *_shared_memory(known)]


def _gdr(known: Nccl) -> Iterator[Finding]:
    """Every channel between nodes without /GDRDMA: data are staged in the host's memory."""
    rdma = {kind: count for kind, count in known.channels.items() if kind.startswith("NET/") and "Socket" not in kind}
    plain = sum(count for kind, count in rdma.items() if "GDRDMA" not in kind)
    direct = sum(rdma.values()) - plain
    switch = next((known.set_by_environment[name] for name in ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_DISABLE")
                   if name in known.set_by_environment), None)  # fmt: skip
    flag_off = False in known.gdr_flags and True not in known.gdr_flags and ("IB" in known.networks or known.found)
    refused = bool(known.gdr_refused) and not known.gdr_allowed
    if known.channels and not rdma and known.nodes == 1:
        return  # one node: nothing is sent that could use it
    if direct or not (plain or flag_off or refused):
        return
    lines = [line for kind, line in known.channel_lines.items() if kind in rdma][:2]
    lines += [known.gdr_flags[False]] if flag_off else []
    lines += known.gdr_refused[:2]
    told = f" {switch[1].text.strip().rpartition(' NCCL ')[2][:80]}." if switch else ""
    said = "NCCL says GDR 0" if flag_off else "NCCL says so of the network devices"
    told_count = f"none of {plain} channels between nodes has it" if plain else said
    yield Finding(
        "gpudirect_rdma_off", WARNING, LIKELY, (),
        f"GPUDirect RDMA is off: {told_count}, so what is sent goes through the host's memory.{told}",
        tuple(evidence(line) for line in (*lines, *((switch[1],) if switch else ()))),
        "lsmod | grep peermem; nvidia-smi topo -m: NIC and GPU must be PIX or PXB apart. GeForce cards have none.",
        (("Unset NCCL_NET_GDR_LEVEL and NCCL_NET_GDR_DISABLE.", *GDR) if switch else GDR), weight=2,
    )  # fmt: skip


def _iommu(known: Nccl) -> Iterator[Finding]:
    """RCCL looks at the kernel's command line itself (RCCL src/init.cc)."""
    if known.iommu is not None:
        yield Finding(
            "p2p_acs_iommu", WARNING, LIKELY, (),
            "RCCL says that the kernel runs without iommu=pt: peer-to-peer transfers may hang or be slow.",
            (evidence(known.iommu),), "cat /proc/cmdline",
            ("Boot with iommu=pt (GRUB_CMDLINE_LINUX).",), known.iommu.when, weight=3,
        )  # fmt: skip


def _p2p(known: Nccl) -> Iterator[Finding]:
    """Shared memory inside a node where peer-to-peer is expected, or peer-to-peer turned off by hand."""
    if known.p2p_refused:
        linked = [line for line in known.p2p_refused if "NVLINK" in line.text.upper()]
        yield Finding(
            "p2p_acs_iommu", WARNING, LIKELY if linked else POSSIBLE, (),
            f"NCCL says that peer-to-peer is disabled between {'GPUs that NVLink joins' if linked else 'GPUs'}.",
            tuple(evidence(line) for line in (linked or known.p2p_refused)[:3]),
            "nvidia-smi topo -p2p r; lspci -vvv | grep ACSCtl; p2pBandwidthLatencyTest.", ACS, weight=2,
        )  # fmt: skip
        return
    off = known.set_by_environment.get("NCCL_P2P_DISABLE")
    if off is not None and off[0] not in ("0", ""):
        yield Finding(
            "p2p_acs_iommu", INFO, POSSIBLE, (),
            "Peer-to-peer between GPUs is turned off by NCCL_P2P_DISABLE: often a stopgap against ACS or an IOMMU.",
            (evidence(off[1]),), "all_reduce_perf with and without it; p2pBandwidthLatencyTest.", ACS, off[1].when,
        )  # fmt: skip
    elif known.channels["SHM"] and not known.channels["P2P"]:
        yield Finding(
            "p2p_acs_iommu", INFO, POSSIBLE, (),
            f"All {known.channels['SHM']} channels inside nodes go through shared memory: the GPUs have no "
            "peer-to-peer, sit on different sockets, or ACS or an IOMMU keeps them apart.",
            (evidence(known.channel_lines["SHM"]),), "nvidia-smi topo -m and -p2p r; lspci -vvv | grep ACSCtl.", ACS,
        )  # fmt: skip


def _shared_memory(known: Nccl) -> Iterator[Finding]:
    """A segment that could not be made, with its size: the sizes tell a full /dev/shm from a forbidden one."""
    sizes = [one.bytes for one in known.segments if one.bytes]
    if sizes:
        per_node = known.ranks // known.nodes if known.ranks else 0
        needed = f" {per_node} ranks on a node make several each," if per_node > 1 else " Every rank makes several,"
        yield Finding(
            "shm_too_small", ERROR, LIKELY, (),
            f"NCCL could not make a segment of {binary(max(sizes))} in /dev/shm.{needed} and a container has "
            f"{binary(DOCKER_SHM)} by default.",
            tuple(evidence(one.line) for one in known.segments[:4]), "df -h /dev/shm; ls -ld /dev/shm (mode 1777).",
            (
                "Start the container with --shm-size=16g or --ipc=host (Kubernetes: an emptyDir of medium Memory).",
                "Remove /dev/shm/nccl-* that earlier jobs left; chmod 1777 /dev/shm if it says Permission denied.",
            ),
            known.segments[0].line.when, weight=1,
        )  # fmt: skip
