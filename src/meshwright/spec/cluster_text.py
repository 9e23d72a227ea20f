"""Clusters from text: `8xA100-40GB`, `2x8xH100`, `cpu`."""

from __future__ import annotations

import re

from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_catalog import links, resolve_device
from meshwright.spec.errors import ClusterError


def parse_cluster(
    text: str,
    *,
    inter_node: str | None = None,
    devices_per_node: int | None = None,
    nics_per_node: float | None = None,
    intra_node: str | None = None,
    device_memory: str | None = None,
) -> Cluster:
    """The cluster that `text` names. Raises ClusterError."""
    match = re.fullmatch(r"(?:(\d{1,7})x)?(?:(\d{1,7})x)?(.+)", text.strip().lower().replace("*", "x").replace("×", "x"))
    if not match:
        raise ClusterError(f"Not a cluster: {text!r}.", ["8xA100-40GB", "2x8xA100-80GB"])
    first, second, name = match.groups()
    preset, warning = resolve_device(name)
    if second:
        nodes, per_node = int(first), int(second)
    else:
        devices = int(first or 1)
        per_node = min(devices, devices_per_node or preset.devices_per_node)
        nodes = devices // per_node
    return Cluster(
        name=f"{nodes * per_node}x{preset.device.name}",
        device=preset.device,
        nodes=nodes,
        devices_per_node=per_node,
        intra=links()[preset.intra],
        inter=links()[preset.host.nic],
        nics_per_node=preset.host.nics,
        host_memory_bytes=preset.host.memory_bytes,
        host_link=links()[preset.host.link],
        nvme_bytes_per_s=preset.host.nvme_bytes_per_s,
        warnings=(warning,) if warning else (),
    )
