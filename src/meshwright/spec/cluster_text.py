"""Clusters from text: `8xA100-40GB`, `2x8xH100`, `cpu`, or the path of a TOML file (`spec.cluster_toml`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_build import Options, build, change
from meshwright.spec.cluster_catalog import Preset, links, presets, resolve_device
from meshwright.spec.cluster_fields import MOST_DEVICES
from meshwright.spec.cluster_toml import read_file, read_toml, to_toml
from meshwright.spec.errors import ClusterError

__all__ = ["DeviceSummary", "list_devices", "parse_cluster", "to_toml"]

COUNT = re.compile(r"([+-]?(?:\d[\d.,_]*(?:e[+-]?\d+)?|nan|inf(?:inity)?))\s*[x×*]\s*", re.IGNORECASE)
EXAMPLES = ("8xA100-40GB", "64xH100", "2x8xH100", "cpu", "cluster.toml")


def parse_cluster(
    text: str,
    *,
    inter_node: str | None = None,
    devices_per_node: int | None = None,
    nics_per_node: float | None = None,
    intra_node: str | None = None,
    device_memory: str | None = None,
) -> Cluster:
    """The cluster that `text` names, changed as the options say.

    `text` is DEVICE, COUNTxDEVICE, NODESxPER_NODExDEVICE, the path of a TOML file, or such a file's text. Fewer devices
    than fill a node are one smaller node. What had to be assumed is in `warnings`.

    `inter_node`: `100Gbps` (the node's one NIC), `4x200Gbps`, `400Gbps IB`, `25GB/s`, or a preset (`ib-hdr`).
    `intra_node`: `nvlink3`, `PCIe`, `300GB/s`; per device and direction. `device_memory`: `40 GiB`, `80 GB`.

    Raises ClusterError for all that cannot be read, naming the nearest legal values.
    """
    options = Options(inter_node, devices_per_node, nics_per_node, intra_node, device_memory)
    if "\n" in text:
        return change(read_toml(text), options)
    if "/" in text or "\\" in text or text.strip().lower().endswith(".toml"):
        return change(read_file(text.strip()), options)
    counts, name = _split(text)
    preset, assumed = resolve_device(name)
    return build(preset, *_shape(counts, preset, options, text), options, (assumed,) if assumed else ())


def _split(text: str) -> tuple[list[int], str]:
    """The counts before a device's name, and the name."""
    rest, counts = text.strip(), list[int]()
    while match := COUNT.match(rest):
        counts.append(_count(match[1], text))
        rest = rest[match.end() :]
    if not rest or len(counts) > 2:
        raise ClusterError(f"{text.strip()[:60]!r} is no cluster.", EXAMPLES)
    return counts, rest


def _count(text: str, whole: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= MOST_DEVICES:
        raise ClusterError(
            f"{whole.strip()[:60]!r}: {text[:20]!r} is no number of devices or nodes; whole numbers from 1 to "
            f"{MOST_DEVICES:,} are.",
            EXAMPLES[:3],
        )
    return int(text)


def _shape(counts: list[int], preset: Preset, options: Options, text: str) -> tuple[int, int]:
    """Nodes and devices a node."""
    asked = options.checked_devices_per_node()
    if len(counts) == 2:
        nodes, per_node = counts
        if asked is not None and asked != per_node:
            raise ClusterError(
                f"{text.strip()!r} has {per_node} devices a node, the option says {asked}.", [str(per_node)]
            )
        if nodes * per_node > MOST_DEVICES:
            raise ClusterError(f"{text.strip()!r} has more than {MOST_DEVICES:,} devices.", EXAMPLES[:3])
        return nodes, per_node
    devices = counts[0] if counts else 1
    return _fill(devices, min(devices, asked or preset.devices_per_node), preset.device.name)


def _fill(devices: int, per_node: int, device: str) -> tuple[int, int]:
    nodes, left = divmod(devices, per_node)
    if left:
        full = nodes * per_node
        divisors = [d for d in range(per_node, 1, -1) if devices % d == 0] or [1]
        raise ClusterError(
            f"{devices} {device} do not fill nodes of {per_node}.",
            [
                *(f"--devices-per-node {d}" for d in divisors[:3]),
                *(f"{count}x{device}" for count in (full, full + per_node) if count),
            ],
        )
    return nodes, per_node


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """One line of the list of known devices."""

    name: str
    title: str
    memory_bytes: float
    bf16_flops: float | None
    """Dense FLOP/s; None: the hardware has no bf16."""
    memory_bytes_per_s: float
    intra: str
    """The link inside a node."""
    inter: str
    """The NICs of a host: `8 x InfiniBand HDR`."""
    devices_per_node: int
    source: str


def list_devices() -> tuple[DeviceSummary, ...]:
    """Every device of the catalogue, in its order."""
    return tuple(
        DeviceSummary(
            name=name,
            title=preset.title,
            memory_bytes=preset.device.memory_bytes,
            bf16_flops=preset.device.peak_flops.get("bf16"),
            memory_bytes_per_s=preset.device.memory_bytes_per_s,
            intra=links()[preset.intra].name,
            inter=f"{preset.host.nics:g} x {links()[preset.host.nic].name}",
            devices_per_node=preset.devices_per_node,
            source=preset.device.source,
        )
        for name, preset in presets().items()
    )
