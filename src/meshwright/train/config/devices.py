"""The catalogue's device behind a GPU's name, as the driver spells it (`NVIDIA A100-SXM4-80GB`, `NVIDIA H100 PCIe`)."""

from __future__ import annotations

import re

from meshwright.spec.cluster import Cluster, Device
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import ClusterError

_NOISE = re.compile(r"\b(nvidia|tesla|amd|instinct|geforce|graphics|hbm2e|hbm3e|hbm3|oam|accelerator)\b", re.IGNORECASE)


def catalogue_name(gpu: str) -> str | None:
    """The catalogue's name of the device that a driver calls `gpu`; None: the catalogue does not have it for sure."""
    from meshwright.spec.cluster_catalog import resolve_device

    for name in (gpu, _NOISE.sub(" ", gpu)):
        try:
            preset, assumed = resolve_device(" ".join(name.split()))
        except ClusterError:
            continue
        if not assumed:
            return preset.device.name
    return None


def known_device(gpu: str) -> Device | None:
    """The catalogue's device, with its peak FLOP/s by precision."""
    name = catalogue_name(gpu)
    return parse_cluster(name).device if name else None


def cluster_of_gpus(gpu: str, ranks: int, per_node: int) -> Cluster | None:
    """`ranks` of the GPU called `gpu`, `per_node` in a node, with their usual links; None: not in the catalogue."""
    name = catalogue_name(gpu)
    if name is None or ranks % per_node:
        return None
    return parse_cluster(f"{ranks // per_node}x{per_node}x{name}" if ranks > per_node else f"{ranks}x{name}")


def is_accelerator(name: str) -> bool:
    """Whether the catalogue has a device of this name that is no CPU."""
    from meshwright.spec.cluster_catalog import presets

    return name in presets() and name != "cpu"
