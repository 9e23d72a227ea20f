"""A cluster file's tables turned into a Cluster: a preset or nothing, and the file's own values over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from meshwright.spec.cluster import Cluster, Device, Efficiency, Link
from meshwright.spec.cluster_build import Options, build, change
from meshwright.spec.cluster_catalog import Preset, links, near, resolve_device
from meshwright.spec.cluster_fields import MOST_DEVICES, Fields, Table, shown
from meshwright.spec.cluster_links import tier_names
from meshwright.spec.errors import ClusterError

TOP = {f.name for f in fields(Cluster)} | {"devices"}
DEVICE = {f.name for f in fields(Device)} | {"preset"}
LINK = {f.name for f in fields(Link)} | {"preset"}
EFFICIENCY = {f.name for f in fields(Efficiency)}
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4")
TIERS = {"host_link": "host", "intra": "intra", "inter": "inter"}
"""The keys of the links, in the order in which they are read (`intra = "PCIe"` looks at the host link), and tiers."""


def cluster_from(table: Table, where: str) -> Cluster:
    """The cluster that a file's top table describes; `where` names the file in errors. Raises ClusterError."""
    read = Fields(where)
    read.known(table, TOP, "the file")
    own = table.get("device")
    if own is None:
        raise read.error("`device` is missing.", ('device = "A100-80GB"', "[device]"))
    own = {"preset": own} if isinstance(own, str) else read.known(own, DEVICE, "[device]")
    preset, assumed = _preset(read, own)
    device = _device(read, own, preset.device if preset else None)
    nodes, per_node = _shape(read, table, preset)
    if preset is not None:
        cluster = replace(build(preset, nodes, per_node, Options(), (assumed,) if assumed else ()), device=device)
    else:
        cluster = _bare(read, table, device, nodes, per_node)
    return _overridden(read, table, cluster)


def _preset(read: Fields, own: Table) -> tuple[Preset | None, str]:
    """The device of the catalogue that the file starts from, if it does, and what was assumed in naming it."""
    if "preset" not in own:
        return None, ""
    try:
        return resolve_device(read.text(own["preset"], "device"))
    except ClusterError as error:
        raise read.error(str(error)) from error


def _device(read: Fields, own: Table, preset: Device | None) -> Device:
    """The preset's numbers, or none, under the table's own."""
    lacking = [f"`{key}`" for key in ("memory_bytes", "memory_bytes_per_s", "peak_flops") if key not in own]
    if preset is None and lacking:
        raise read.error(f"[device] lacks {', '.join(lacking)}, or a `preset`.")
    device = preset or Device("custom", 1.0, 1.0, {})
    changes: dict[str, Any] = {
        key: read.number(own[key], key) for key in ("memory_bytes", "memory_bytes_per_s") if key in own
    }
    changes |= {key: read.text(own[key], key) for key in ("name", "source") if key in own}
    peaks = {**device.peak_flops, **read.numbers(own.get("peak_flops", {}), PRECISIONS, "[device.peak_flops]")}
    if not peaks:
        raise read.error("[device.peak_flops] is empty.", PRECISIONS)
    constants = read.numbers(own.get("efficiency", {}), EFFICIENCY, "[device.efficiency]")
    return replace(device, peak_flops=peaks, efficiency=replace(device.efficiency, **constants), **changes)


def _shape(read: Fields, table: Table, preset: Preset | None) -> tuple[int, int]:
    """Nodes and devices a node."""
    per_node, nodes, devices = (read.whole(table, key) for key in ("devices_per_node", "nodes", "devices"))
    if per_node is None:
        if preset is None:
            raise read.error("`devices_per_node` is missing.", ("devices_per_node = 8",))
        usual = preset.devices_per_node
        per_node = min(devices, usual) if devices is not None and nodes is None else usual
    if devices is not None:
        if devices % per_node or nodes not in (None, devices // per_node):
            raise read.error(f"{devices} devices are not {nodes if nodes else 'whole'} nodes of {per_node}.")
        nodes = devices // per_node
    nodes = nodes or 1
    if nodes * per_node > MOST_DEVICES:
        raise read.error(f"more than {MOST_DEVICES:,} devices.")
    return nodes, per_node


def _bare(read: Fields, table: Table, device: Device, nodes: int, per_node: int) -> Cluster:
    """A cluster of a device that the catalogue does not know; its links come from the file."""
    lacking = [f"`{key}`" for key in ("intra", "inter", "nics_per_node") if key not in table]
    if lacking:
        raise read.error(f"{', '.join(lacking)} missing; only a device with a `preset` has its own.")
    blank = Link("unnamed", 1.0, 0.0)
    return Cluster(f"{nodes * per_node}x{device.name}", device, nodes, per_node, blank, blank, 1.0)


def _overridden(read: Fields, table: Table, cluster: Cluster) -> Cluster:
    """`cluster` with the file's own values."""
    numbers = ("nics_per_node", "host_memory_bytes", "nvme_bytes_per_s")
    changes: dict[str, Any] = {key: read.number(table[key], key) for key in numbers if key in table}
    if "name" in table:
        changes["name"] = read.text(table["name"], "name")
    cluster = replace(cluster, **changes)
    for key in TIERS:
        if key in table:
            cluster = _linked(read, cluster, key, table[key], "nics_per_node" in table)
    if "warnings" in table:
        cluster = replace(cluster, warnings=read.texts(table["warnings"], "warnings"))
    return cluster


def _linked(read: Fields, cluster: Cluster, key: str, value: Any, counted: bool) -> Cluster:
    """`cluster` with one tier from a text or a table; a text may say the number of NICs unless the file has."""
    if isinstance(value, str) and key != "host_link":
        nics = cluster.nics_per_node if counted else None
        options = Options(inter_node=value, nics_per_node=nics) if key == "inter" else Options(intra_node=value)
        try:
            return change(cluster, options)
        except ClusterError as error:
            raise read.error(f"{key}: {error}") from error
    link = _preset_link(read, key, value) if isinstance(value, str) else _link(read, key, value)
    changes: dict[str, Any] = {key: link}
    return replace(cluster, **changes)


def _link(read: Fields, key: str, value: Any) -> Link:
    """One tier from a table."""
    if not isinstance(value, Mapping):
        raise read.error(f"{key} must be a text or a table, not {shown(value)}.")
    table = read.known(value, LINK, f"[{key}]")
    lacking = [f"`{name}`" for name in ("bytes_per_s", "latency_s") if name not in table]
    if lacking and "preset" not in table:
        raise read.error(f"[{key}] lacks {', '.join(lacking)}, or a `preset`.")
    link = _preset_link(read, key, table["preset"]) if "preset" in table else Link(key, 1.0, 0.0)
    changes: dict[str, Any] = {
        name: read.number(table[name], name) for name in ("bytes_per_s", "latency_s", "congestion") if name in table
    }
    changes |= {name: read.text(table[name], name) for name in ("name", "source") if name in table}
    return replace(link, **changes)


def _preset_link(read: Fields, key: str, value: Any) -> Link:
    names, name = tier_names(TIERS[key]), read.text(value, key)
    if name not in names:
        raise read.error(f"{key}: no link is called {name[:60]!r}.", near(name, names))
    return links()[name]
