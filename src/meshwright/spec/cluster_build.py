"""A Cluster from a device of the catalogue and its usual surroundings, and a Cluster changed by options."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_catalog import Preset, links
from meshwright.spec.cluster_links import parse_inter, parse_intra
from meshwright.spec.errors import ClusterError
from meshwright.spec.units import UnitError, gbps, parse_bytes


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line may say beside the cluster; None: nothing. `parse_cluster` documents the texts."""

    inter_node: str | None = None
    devices_per_node: int | None = None
    nics_per_node: float | None = None
    intra_node: str | None = None
    device_memory: str | None = None

    def checked_devices_per_node(self) -> int | None:
        """The number, or None. Raises ClusterError unless it is a whole number from 1."""
        value = self.devices_per_node
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ClusterError(f"Devices per node must be a whole number from 1, not {value!r}.", ["4", "8"])
        return value

    def checked_nics_per_node(self) -> float | None:
        """The number, or None. Raises ClusterError unless it is finite and above 0; half a NIC is a shared one."""
        value = self.nics_per_node
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ClusterError(f"NICs per node must be above 0 and finite, not {value!r}.", ["1", "8"])
        return value


def build(preset: Preset, nodes: int, per_node: int, options: Options, warnings: tuple[str, ...] = ()) -> Cluster:
    """`nodes` × `per_node` of a catalogue device in its usual hosts, changed as `options` say.

    A node of several hosts (an NVL72 rack) has their memory, drives and NICs together; a node smaller than a host has
    the host's memory and drives and its share of the NICs, at least one. Raises ClusterError.
    """
    host = preset.host
    hosts = math.ceil(per_node / host.devices)
    cluster = Cluster(
        name=_name(preset, nodes, per_node),
        device=preset.device,
        nodes=nodes,
        devices_per_node=per_node,
        intra=links()[preset.intra],
        inter=links()[host.nic],
        nics_per_node=max(1.0, host.nics * per_node / host.devices),
        host_memory_bytes=hosts * host.memory_bytes,
        host_link=links()[host.link],
        nvme_bytes_per_s=hosts * host.nvme_bytes_per_s,
        warnings=(*warnings, *_remarks(preset, nodes, per_node)),
    )
    return change(cluster, replace(options, devices_per_node=None))


def _name(preset: Preset, nodes: int, per_node: int) -> str:
    """The shortest text that `parse_cluster` reads as this shape."""
    usual = min(nodes * per_node, preset.devices_per_node)
    shape = f"{nodes * per_node}" if per_node == usual else f"{nodes}x{per_node}"
    return f"{shape}x{preset.device.name}"


def _remarks(preset: Preset, nodes: int, per_node: int) -> tuple[str, ...]:
    """What a reader should know of this device and this shape."""
    device, usual = preset.device.name, preset.devices_per_node
    remarks = [preset.note] if preset.note else []
    if per_node > usual:
        remarks.append(f"{per_node} {device} a node, as asked; their fast link usually joins {usual}.")
    elif nodes > 1 and per_node <= preset.host.devices < usual:
        remarks.append(
            f"{per_node} {device} a node, as asked: the rest is priced as network, though the fast link joins {usual}."
        )
    return tuple(remarks)


def change(cluster: Cluster, options: Options) -> Cluster:
    """`cluster` with what `options` say; the number of devices stays. Raises ClusterError."""
    if options.checked_devices_per_node() is not None:
        cluster = _resize(cluster, options.devices_per_node or 1)
    if options.device_memory is not None:
        cluster = replace(
            cluster, device=replace(cluster.device, memory_bytes=_memory(options.device_memory, cluster.device.name))
        )
    if options.intra_node is not None:
        cluster = replace(cluster, intra=parse_intra(options.intra_node, cluster.intra, cluster.host_link))
    nics = options.checked_nics_per_node()
    if options.inter_node is not None:
        return _network(cluster, options.inter_node, nics)
    return cluster if nics is None else replace(cluster, nics_per_node=float(nics))


def _resize(cluster: Cluster, per_node: int) -> Cluster:
    """The same devices in nodes of `per_node`, each with its share of the NICs; hosts keep their memory."""
    per_node = min(per_node, cluster.devices)
    nodes, left = divmod(cluster.devices, per_node)
    if left:
        divisors = [str(d) for d in range(1, cluster.devices + 1) if cluster.devices % d == 0]
        raise ClusterError(f"{cluster.devices} devices do not fill nodes of {per_node}.", divisors[:8])
    nics = cluster.nics_per_node * per_node / cluster.devices_per_node
    return replace(cluster, nodes=nodes, devices_per_node=per_node, nics_per_node=max(1.0, nics))


def _memory(text: str, device: str) -> float:
    try:
        size = parse_bytes(text)
    except UnitError as error:
        raise ClusterError(f"Memory of {device}: {error}") from error
    if size <= 0:
        raise ClusterError(f"Memory of {device}: it must be above 0, not {text!r}.", ["40 GiB", "80 GB"])
    return size


def _network(cluster: Cluster, text: str, nics: float | None) -> Cluster:
    network = parse_inter(text)
    count = nics if nics is not None else network.nics if network.nics is not None else cluster.nics_per_node
    warnings = cluster.warnings
    if network.assumed and nics is None and cluster.nics_per_node != 1 and cluster.nodes > 1:
        usual = f"{cluster.nics_per_node:g}x{gbps(network.link.bytes_per_s).replace(' ', '')}"
        warnings += (
            f"{text.strip()} between nodes is taken as one NIC a node; write {usual} for {usual.split('x')[0]}.",
        )
    return replace(cluster, inter=network.link, nics_per_node=float(count), warnings=warnings)
