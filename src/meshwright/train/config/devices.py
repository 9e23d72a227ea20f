"""The catalogue's devices and clusters behind the GPU's name that the driver tells."""

from __future__ import annotations

from meshwright.spec.cluster import Cluster, Device
from meshwright.spec.cluster_catalog import catalogue_name, presets
from meshwright.spec.cluster_text import parse_cluster


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
    return name in presets() and name != "cpu"
