"""Rules on the transport between nodes and on the interface that it uses."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.network.nccl_facts import Interface, Nccl

VIRTUAL = ("lo", "docker", "veth", "virbr", "cni", "flannel", "cali", "br-", "vnet", "tun", "tap", "podman")
"""Starts of interfaces' names that lead to no other node (Linux, Docker, libvirt and the usual container networks)."""
RDMA = (
    "Give the job the RDMA devices (/dev/infiniband, the plug-in, memlock unlimited) and set NCCL_IB_HCA to them.",
    "On RoCE also NCCL_IB_GID_INDEX. The log must then say NET/IB : Using, not NET/Socket.",
)
EFA = (
    "Use an instance with EFA, attach its interfaces and set FI_PROVIDER=efa.",
    "The log must then say: NET/OFI Selected Provider is efa.",
)


def find_transport(facts: Facts) -> list[Finding]:
    """Sockets where RDMA is expected, networks that differ between ranks, interfaces that lead nowhere."""
    known = facts.of(Nccl)
    return [*_split(known), *_efa(known), *_sockets(known), *_unpinned(known), *_virtual(known)]


def _uses_sockets(known: Nccl) -> Line | None:
    """The line that says that tensors go over sockets."""
    channel = known.channel_lines.get("NET/Socket")
    network = next(iter(known.networks.get("Socket", {}).values()), None)
    data = next((one.line for one in known.interfaces if one.data), None)
    if any(kind.startswith("NET/") and kind != "NET/Socket" for kind in known.channels):
        return channel
    return channel or network or (data if not known.found and "IB" not in known.networks else None)


def _split(known: Nccl) -> Iterator[Finding]:
    """Some hosts took InfiniBand and some sockets: they cannot speak to each other, or all of them go the slow way."""
    sockets, others = known.networks.get("Socket", {}), {
        host: line for name, by_host in known.networks.items() if name != "Socket" for host, line in by_host.items()
    }  # fmt: skip
    fast = set(known.networks) - {"Socket"}
    apart = sorted(set(sockets) - set(others))
    if apart and set(others) - set(sockets):
        yield Finding(
            "slow_network_wrong_transport", ERROR, LIKELY, (),
            f"{', '.join(apart[:4])} took sockets where other hosts took {', '.join(sorted(fast))}.",
            tuple(evidence(line) for line in (*list(sockets.values())[:2], *list(others.values())[:2])),
            "ibv_devinfo on these hosts, inside the container.", RDMA, weight=3,
        )  # fmt: skip


def _efa(known: Nccl) -> Iterator[Finding]:
    """The plug-in for EFA is there and EFA is not: NCCL falls back to sockets and says no more."""
    slow = next((line for name, line in known.providers.items() if name.lower() in ("tcp", "sockets")), None)
    line = known.efa_refused or slow
    if line is not None and not any("efa" in name.lower() for name in known.providers):
        yield Finding(
            "slow_network_wrong_transport", WARNING, LIKELY, (),
            "The OFI plug-in found no EFA device, so NCCL sends between nodes over sockets.",
            tuple(evidence(one) for one in (line, _uses_sockets(known)) if one is not None),
            "fi_info -p efa inside the container.", EFA, line.when, weight=3,
        )  # fmt: skip


def _sockets(known: Nccl) -> Iterator[Finding]:
    """Sockets between nodes. In a job that no line calls larger than a node this is only told."""
    line = _uses_sockets(known)
    if line is None or known.efa_refused is not None:
        return
    # Ranks that share memory and send nothing over a network are on one node.
    across = known.nodes > 1 or known.channels["NET/Socket"] > 0
    if not across and (known.channels or known.iommu is not None):
        return
    disabled = known.set_by_environment.get("NCCL_IB_DISABLE")
    off = disabled is not None and disabled[0] not in ("0", "")
    absent = next(iter(known.absent.values()), None)
    why = " as NCCL_IB_DISABLE is set" if off else " as no RDMA device was found" if absent else ""
    said = [line, *([disabled[1]] if off and disabled else []), *([absent] if absent else [])]
    yield Finding(
        "slow_network_wrong_transport", WARNING if across else INFO, LIKELY if across and why else POSSIBLE, (),
        f"NCCL sends {'between nodes' if across else 'to other nodes, if there are any,'} over TCP sockets{why}.",
        tuple(evidence(one) for one in said),
        "nccl-tests between two nodes against the rate of their NICs; ibv_devinfo inside the container.",
        (("Unset NCCL_IB_DISABLE, if the nodes have InfiniBand or RoCE.", *RDMA) if off else RDMA), line.when, weight=1,
    )  # fmt: skip


def matches(name: str, wanted: str) -> bool:
    """Whether an interface is one that NCCL_SOCKET_IFNAME asks for (NCCL's documentation: `^` not, `=` exactly)."""
    refuse, text = wanted.startswith("^"), wanted.lstrip("^")
    exact, text = text.startswith("="), text.lstrip("=")
    prefixes = [one.strip().partition(":")[0] for one in text.split(",") if one.strip()]
    hit = any(name == one if exact else name.startswith(one) for one in prefixes)
    return hit != refuse


def _unpinned(known: Nccl) -> Iterator[Finding]:
    """Another interface than NCCL_SOCKET_IFNAME asks for."""
    wanted = known.set_by_environment.get("NCCL_SOCKET_IFNAME")
    chosen = [one for one in known.interfaces if one.data] or known.interfaces
    if wanted is None or not chosen or not wanted[0]:
        return
    unread = all("<" in one.name for one in chosen)
    wrong = [one for one in chosen if "<" not in one.name and not matches(one.name, wanted[0])]
    if wrong or (unread and _uses_sockets(known) is not None):
        yield Finding(
            "slow_network_wrong_nic", WARNING if wrong else INFO, LIKELY if wrong else POSSIBLE, (),
            f"NCCL_SOCKET_IFNAME asks for {wanted[0]}, and NCCL took {wrong[0].name}."
            if wrong
            else f"NCCL_SOCKET_IFNAME asks for {wanted[0]}; the system's routes decide by which interface data leave.",
            (evidence(wanted[1]), *(evidence(one.line) for one in (wrong or chosen)[:3])),
            "The counters of the interfaces (ip -s link) on both nodes while the job runs; ip route get ADDRESS.",
            (
                "Put the master's address into the fast subnet, and give the slow one no route between the nodes.",
                "Set NCCL_SOCKET_IFNAME on every node to that node's own name of the fast interface.",
            ),
            weight=2,
        )  # fmt: skip


def _virtual(known: Nccl) -> Iterator[Finding]:
    """An interface that leads to no other node, or another one on each host."""
    if known.nodes < 2:
        return
    dead = [one for one in known.interfaces if one.name == "lo" or one.name.startswith(VIRTUAL[1:])]
    if dead:
        yield _wrong(dead, f"NCCL took {dead[0].name}, which leads to no other node.", LIKELY)
    elif _uses_sockets(known) is not None:
        first = {one.host: one for one in reversed(known.interfaces) if one.data and "<" not in one.name}
        networks = {_network(one.address) for one in first.values()}
        if len({one.name for one in first.values()}) > 1 and len(networks) > 1:
            names = ", ".join(f"{one.name} on {host}" for host, one in list(first.items())[:4])
            yield _wrong(
                list(first.values()), f"Hosts send by different interfaces in different subnets: {names}.", POSSIBLE
            )


def _network(address: str) -> str:
    """The first three parts of an IPv4 address; nodes of one fabric usually share them, or two of them."""
    return ".".join(address.split(".")[:2])


def _wrong(found: list[Interface], cause: str, confidence: str) -> Finding:
    return Finding(
        "slow_network_wrong_nic", WARNING, confidence, (), cause,
        tuple(evidence(one.line) for one in found[:6]),
        "ip -br addr on every node; which interface carries the traffic (ip -s link).",
        ("Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to the interface that joins the nodes.",), weight=2,
    )  # fmt: skip
