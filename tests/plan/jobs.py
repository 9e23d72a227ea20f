"""Small jobs whose every layout can be priced one by one."""

from __future__ import annotations

from dataclasses import replace

from meshwright.plan.question import Question
from meshwright.spec.cluster import Cluster, Device, Link
from meshwright.spec.model import Experts, Model
from meshwright.spec.workload import Workload

DENSE = Model("dense", 4, 512, 8, 4, 64, 1408, 32000, 2048)
MIXTURE = replace(DENSE, name="mixture", experts=Experts(4, 2, 1024))
DEVICE = Device("D", 80 * 2.0**30, 2e12, {"fp32": 20e12, "bf16": 300e12})
FAST, SLOW = Link("fast", 300e9, 3e-6), Link("slow", 25e9, 10e-6)


def cluster(devices: int, per_node: int, memory_bytes: float = DEVICE.memory_bytes) -> Cluster:
    """Nodes of so many devices, each with one slow NIC."""
    device = replace(DEVICE, memory_bytes=memory_bytes)
    return Cluster(f"{devices}xD", device, devices // per_node, per_node, FAST, SLOW, per_node)


def question(model: Model, devices: int, *, batch: int = 8, memory_bytes: float = DEVICE.memory_bytes) -> Question:
    """Two devices a node, short sequences."""
    workload = Workload(1024, batch, states="mixed")
    return Question(model, cluster(devices, 2, memory_bytes), workload, devices)
