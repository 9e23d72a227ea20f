"""Clusters as TOML files.

    device = "A100-80GB"        # start from the catalogue …
    nodes = 4                   # or `devices = 32`; without either: one node
    devices_per_node = 8
    inter = "4x200Gbps"         # any text of --inter-node
    intra = "nvlink3"           # any text of --intra-node

    [device]                    # … or give every number; with `preset` only those that differ
    preset = "A100-80GB"
    memory_bytes = "40 GiB"
    [device.peak_flops]
    bf16 = 312e12
    [device.efficiency]         # the fields of spec.cluster.Efficiency
    link = 1.0                  # a measured bandwidth below is what is reached

    [inter]                     # a measured network: one tier a table, `intra`, `inter`, `host_link`
    name = "measured"
    bytes_per_s = "21.4 GB/s"   # per NIC and direction; intra and host_link per device and direction
    latency_s = "12 us"

Keys are the field names of `spec.cluster`; a number is in the field's unit, a text names its unit. `preset` in a link's
table starts from a link of the catalogue. Without a preset device, `nodes`, `devices_per_node`, `nics_per_node`,
`intra`, `inter` and all of `device` must be there.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from meshwright.spec.cluster import Cluster, Device, Efficiency, Link
from meshwright.spec.cluster_read import cluster_from
from meshwright.spec.errors import ClusterError

MOST_BYTES = 256 * 1024
"""Size of the largest file that is read."""


def read_file(path: str) -> Cluster:
    """The cluster that the file describes. Raises ClusterError: no such file, too large, not UTF-8, not a cluster."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ClusterError(f"{path}: not UTF-8 text (byte {error.start}).") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterError(f"Cannot read the cluster file {path[:200]!r}: {reason}.") from error
    return read_toml(text, path)


def read_toml(text: str, where: str = "cluster text") -> Cluster:
    """The cluster that a file's `text` describes; `where` names it in errors. Raises ClusterError."""
    if len(text) > MOST_BYTES:
        raise ClusterError(f"{where}: a cluster file has at most {MOST_BYTES // 1024} KiB.")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        last = f"at line {text.count(chr(10)) + 1}, the end"
        raise ClusterError(f"{where}: broken TOML: {reason.replace('at end of document', last)}.") from error
    return cluster_from(table, where)


def to_toml(cluster: Cluster) -> str:
    """A file's text with every number of `cluster`, which `read_toml` and `parse_cluster` read back equal."""
    top = {f.name: getattr(cluster, f.name) for f in fields(Cluster)}
    tables = {name: top.pop(name) for name in ("device", "intra", "inter", "host_link")}
    blocks = [_assignments(top), *_device_blocks(tables.pop("device"))]
    blocks += [_block(name, link, Link) for name, link in tables.items()]
    return "\n".join(blocks)


def _device_blocks(device: Device) -> list[str]:
    own = {f.name: getattr(device, f.name) for f in fields(Device)}
    peaks: Mapping[str, float] = own.pop("peak_flops")
    efficiency: Efficiency = own.pop("efficiency")
    return [
        "[device]\n" + _assignments(own),
        "[device.peak_flops]\n" + _assignments(peaks),
        _block("device.efficiency", efficiency, Efficiency),
    ]


def _block(name: str, value: Any, kind: type) -> str:
    return f"[{name}]\n" + _assignments({f.name: getattr(value, f.name) for f in fields(kind)})


def _assignments(values: Mapping[str, Any]) -> str:
    """One `key = value` line an entry; the standard library reads TOML but does not write it."""
    return "".join(f"{key} = {_literal(value)}\n" for key, value in values.items())


def _literal(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, but TOML wants DEL escaped and has no surrogate pairs.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    return str(value) if isinstance(value, int) else repr(float(value))
