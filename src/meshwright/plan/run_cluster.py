"""The cluster that a published run describes, as far as its columns state numbers."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_catalog import resolve_device
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import RequestError


def cluster_of_run(row: Mapping[str, str]) -> Cluster:
    """Device and network of a run's row. Raises RequestError where the device is not in the catalogue."""
    from meshwright.catalog.cluster_files import device_tables

    name = device_tables().get("runs", {}).get(row["gpu"], row["gpu"])
    preset, _ = resolve_device(name)
    devices = int(row["gpus"])
    per_node = min(devices, int(row.get("gpus_per_node") or preset.devices_per_node))
    if devices % per_node:
        raise RequestError(f"{devices} devices do not fill nodes of {per_node}")
    return parse_cluster(f"{devices // per_node}x{per_node}x{preset.device.name}")
