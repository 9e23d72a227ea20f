"""Published runs' own words for their device and interconnect, as `parse_cluster` understands them.

Only stated numbers are taken over: "NVLink" says no more than the device's default, "RDMA 400Gb/s per GPU" does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from meshwright.catalog.cluster_files import device_tables, link_tables
from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_catalog import Preset, near, presets, resolve_device
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import ClusterError

SPEED = r"(?P<speed>\d+(?:\.\d+)?)\s*(?P<unit>G[bB])(?:/s|/[Ss]ec|ps)?"
COUNTED = re.compile(r"(?P<count>\d+)\s*x\s*(?P<words>[^,+;:]*?)\s*\(?" + SPEED)
"""`8x HDR InfiniBand 200Gb/s`, `4x100Gb RoCE`: NICs and the speed of one."""
SHARED = re.compile(SPEED + r"(?P<words>[^,+;:]*?)\s+per (?P<owner>GPU|node)")
"""`RDMA 400Gb/s per GPU`, `RoCE 1600 Gb/s per node`."""
TOTAL = re.compile(r"(\d+(?:\.\d+)?)\s*GB/s", re.IGNORECASE)
KINDS = (("omni-path", "omni-path"), ("roce", "RoCE"), ("ethernet", "Ethernet"), ("rdma", "RDMA"))


@dataclass(frozen=True, slots=True)
class RunLinks:
    """What a run states of its interconnect, as options of `parse_cluster`; None: nothing."""

    inter_node: str | None = None
    intra_node: str | None = None


def device_of_run(gpu: str) -> str | None:
    """The catalogue's name of the device that a published run calls `gpu`, or None if no device fits."""
    name = device_tables()["runs"].get(gpu)
    if name is not None:
        return str(name)
    try:
        return resolve_device(gpu)[0].device.name
    except ClusterError:
        return None


def link_of_run(inter_link: str, gpus_per_node: int, intra_link: str = "") -> RunLinks:
    """What the columns `inter_link` and `intra_link` state in numbers, for nodes of `gpus_per_node` devices.

    A bandwidth a node is shared out to one NIC a device. Of several networks the fastest carries the training. A number
    on an NVLink is the data sheet's: both directions together.
    """
    known = link_tables()["runs"].get(inter_link.strip())
    return RunLinks(known["inter_node"] if known else _inter(inter_link, gpus_per_node), _intra(intra_link))


def _inter(text: str, gpus_per_node: int) -> str | None:
    kind = _kind(text)
    counted = [(int(m["count"]), float(m["speed"]), m["unit"]) for m in COUNTED.finditer(text)]
    if counted:
        count, speed, unit = max(counted, key=lambda nic: nic[0] * nic[1] * (8 if nic[2] == "GB" else 1))
        return f"{count}x{speed:g}{unit}/s {kind}"
    if shared := SHARED.search(text):
        each = float(shared["speed"]) / (gpus_per_node if shared["owner"] == "node" else 1)
        return f"{gpus_per_node}x{each:g}{shared['unit']}/s {kind}"
    return None


def _kind(text: str) -> str:
    """The word for the network that `parse_inter` knows; InfiniBand wins where several are named."""
    words = text.lower()
    if re.search(r"\bib\b|infiniband", words):
        return "IB"
    return next((name for word, name in KINDS if word in words), "RDMA")


def _intra(text: str) -> str | None:
    if text.strip().lower() == "pcie":
        return "PCIe"
    total = TOTAL.search(text) if "nvlink" in text.lower() else None
    return f"{float(total[1]) / 2:g}GB/s" if total else None


def cluster_of_run(
    gpu: str, gpus: int, gpus_per_node: int | None, intra_link: str = "", inter_link: str = ""
) -> Cluster:
    """The cluster that a published run describes; what it leaves open is the device's default.

    Devices of an NVL72 rack are joined beyond their host: the node is then the largest equal share of the devices that
    a rack holds. Raises ClusterError: an unknown device, or devices that do not fill nodes.
    """
    name = device_of_run(gpu)
    if name is None:
        raise ClusterError(f"No device of the catalogue is what a run calls {gpu[:60]!r}.", near(gpu, presets()))
    preset = presets()[name]
    per_host = gpus_per_node or preset.host.devices
    per_node = _domain(preset, gpus, per_host)
    said = link_of_run(inter_link, per_host, intra_link)
    cluster = parse_cluster(
        f"{gpus}x{name}", inter_node=said.inter_node, intra_node=said.intra_node, devices_per_node=per_node
    )
    if said.inter_node is None or per_node <= per_host:
        return cluster
    return replace(cluster, nics_per_node=cluster.nics_per_node * per_node / per_host)


def _domain(preset: Preset, gpus: int, per_host: int) -> int:
    """Devices that the fast link joins in a run: a host's, or the largest equal share of the run that a rack holds."""
    if preset.devices_per_node <= preset.host.devices:
        return per_host
    return max(size for size in range(1, min(gpus, preset.devices_per_node) + 1) if gpus % size == 0)
