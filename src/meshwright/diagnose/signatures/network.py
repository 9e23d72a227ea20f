"""What NCCL and sockets say of networks, and the texts that only follow from something else."""

from __future__ import annotations

from meshwright.diagnose.finding import INFO, POSSIBLE
from meshwright.diagnose.signatures.signature import Signature

_LINK = (
    ("Count which adapter and which peer occur in most lines: one of them alone is a cable, a port or a node."),
    "All of them: routing, GID index, PFC or the subnet manager.",
    "Only then NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT.",
)
"""After the name of a counter: what it counts is there. nvidia-smi -q and DCGM name every counter, mostly with 0."""
_EARLIER = "The first error in time over all ranks; the log of the rank that ended first."


def _card(key: str, pattern: str) -> Signature:
    return Signature(
        "network_error",
        key,
        pattern,
        "A call to the network card failed.",
        (*_LINK, "ulimit -l unlimited (locked memory) in the container."),
        "NCCL src/misc/ibvwrap.cc",
        confidence=POSSIBLE,
        weight=3,
        confirm="ibstat, ulimit -l, and ib_write_bw between two nodes.",
    )


NETWORK = (
    _card("net/ib", r"NET/IB ?:.{0,200}(?:Got async event|port error|link down|LID change|GID (?:table|change))"),
    _card("ibv_", r"ibv_(?!open_device)\w+ (?:failed|error)"),
    _card("rdma", r"NCCL WARN.{0,200}RDMA.{0,200}fail"),
    Signature(
        "network_error",
        "connect|network is unreachable|no route to host",
        (
            r"(?:socketStartConnect|socketPollConnect|Call to connect|NCCL WARN.{0,120}?connect).{0,200}(?:refused|"
            r"timed out|No route to host|unreachable)|No route to host|Network is unreachable"
        ),
        "A rank cannot reach another one over the network.",
        (
            "Open all TCP ports between the nodes.",
            "Name the interface that leads to the others: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME.",
        ),
        "NCCL src/misc/socket.cc",
        confidence=POSSIBLE,
        weight=2,
        confirm="ping and nc -zv between the two nodes.",
    ),
    Signature(
        "slow_network_wrong_transport",
        "device",
        r"Call to ibv_open_device failed|NET/IB ?: Unable to open device (?P<device>\S+)",
        "NCCL cannot open an InfiniBand or RoCE device that is there, and goes on with sockets.",
        (
            "Give the container the devices: --device /dev/infiniband, --cap-add IPC_LOCK, --ulimit memlock=-1.",
            "Name the device that is wired: NCCL_IB_HCA.",
        ),
        "NCCL src/transport/net_ib.cc",
        confidence=POSSIBLE,
        weight=4,
        confirm="NCCL_DEBUG=INFO should say NET/IB : Using [0]mlx5_0; ibv_devinfo in the container.",
    ),
    Signature(
        "slow_network_wrong_nic",
        "interface|net: using",
        r"NET ?(?:/Socket)? ?: Using (?:interface )?(?:\[\d+\])?(?P<name>lo|docker\d+|virbr\d+|br-\w+)\b",
        "NCCL uses {name}, an interface that does not lead to other nodes.",
        ("Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to an interface of every node, or exclude it: ^lo,docker.",),
        "NCCL src/misc/socket.cc",
        confidence=POSSIBLE,
        weight=3,
        confirm="ip -br addr on every node.",
    ),
    Signature(
        "slow_network_wrong_nic",
        "interface|net: using",
        (
            r"(?:no socket interface found|Unable to find (?:a|any) (?:usable )?(?:network "
            r")?interface|Failed to find interface).*"
        ),
        "The interface that is asked for is not there.",
        (("Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to an interface of every node: ip -br addr."),),
        "NCCL src/misc/socket.cc",
        weight=3,
    ),
    Signature(
        "network_error",
        "completion",
        r"Got completion (?:with )?error (?P<status>\d+)",
        "The network card reports a failed transfer (status {status}): the other side or the path to it is silent.",
        _LINK,
        "NCCL src/transport/net_ib.cc; ibv_wc_status",
        confidence=POSSIBLE,
        weight=2,
        confirm="The counters of the adapters and switch ports; ib_write_bw between the two nodes.",
    ),
    Signature(
        "slow_network_wrong_transport",
        "net/ofi",
        r"NET/OFI Could not find any optimal provider",
        "The plugin for EFA found no EFA device, so that NCCL goes on with sockets.",
        ("Attach an EFA interface to the instance, and show /dev/infiniband to the container.", "FI_PROVIDER=efa."),
        "aws-ofi-nccl src/nccl_ofi_net.c",
        confidence=POSSIBLE,
        weight=3,
        confirm="fi_info -p efa on the node; the log should say NET/OFI Selected Provider is efa.",
    ),
    Signature(
        "slow_network_wrong_transport",
        "libibverbs",
        r"Failed to open libibverbs\.so",
        "The library for InfiniBand is not there, so that NCCL can use sockets alone between nodes.",
        ("Install libibverbs (rdma-core) in the image, if the nodes have InfiniBand, RoCE or EFA.",),
        "NCCL src/misc/ibvwrap.cc",
        severity=INFO,
        confidence=POSSIBLE,
        weight=1,
    ),
    Signature(
        "network_error",
        "remote",
        r"ncclRemoteError|remote process exited or there was a network error",
        "A peer went away; why is in another rank's log.",
        ("Read the log of the rank that ended first.",),
        "NCCL src/nccl.h",
        confidence=POSSIBLE,
        consequence=True,
        confirm=_EARLIER,
    ),
    Signature(
        "network_error",
        "system error|ncclsystemerror",
        r"unhandled system error|ncclSystemError",
        "NCCL failed in a call to the system; the warning before it says which.",
        ("Run with NCCL_DEBUG=WARN and read the line before this one.",),
        "NCCL src/nccl.h",
        confidence=POSSIBLE,
        consequence=True,
        confirm=_EARLIER,
    ),
)
