"""What a launch command or a printed configuration says of the layout, as far as it decides over traffic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.network.nccl_facts import Nccl, evidence

_KEYS = ("tensor", "tp-size", "tp_size", "per-node", "per_node", "nnodes", "zero", '"stage"')
"""One of them is in every line that is read here."""
RACK = ("GB200", "GB300", "NVL72", "NVL36")
"""Devices whose NVLink spans hosts: tensor parallelism over them stays inside (NVIDIA GB200 NVL72 data sheet)."""

_GAP = r"['\"]?(?:\s*[:=.]+\s*|\s+)['\"]?"
_FIELDS = {
    "tensor": re.compile(
        rf"(?:tensor[-_](?:model[-_])?parallel[-_](?:size|degree)|\btp[-_]size|\btensor_parallel){_GAP}(\d{{1,5}})\b"
    ),
    "per_node": re.compile(rf"(?:nproc|gpus|ntasks|tasks)[-_]per[-_]node{_GAP}(?:gpu:)?(\d{{1,4}})\b"),
    "nodes": re.compile(rf"\bnnodes{_GAP}(?:\d+:)?(\d{{1,5}})\b"),
    "zero": re.compile(rf"(?:zero_optimization_stage|zero[-_]stage|\"stage\"){_GAP}(\d)\b"),
    "hpz": re.compile(rf"zero_hpz_partition_size{_GAP}(\d{{1,4}})\b"),
}  # fmt: skip


@dataclass
class Layout:
    """The last value of each, and its line."""

    of: dict[str, tuple[int, Line]] = field(default_factory=dict)
    rack: bool = False

    def value(self, name: str) -> int:
        """0: not told."""
        return self.of[name][0] if name in self.of else 0


def collect(line: Line, facts: Facts) -> str:
    """Takes what the line says of the layout."""
    if not any(key in line.text for key in _KEYS):
        return ""
    known = facts.of(Layout)
    for name, pattern in _FIELDS.items():
        if found := pattern.search(line.text):
            known.of[name] = (int(found[1]), line)
    known.rack |= any(name in line.text for name in RACK)
    return ""


def find_layout_traffic(facts: Facts) -> list[Finding]:
    """Tensor parallelism over nodes, ZeRO-3 over nodes."""
    return [*_tensor(facts.of(Layout)), *_zero(facts.of(Layout), facts)]


def _tensor(known: Layout) -> Iterator[Finding]:
    """Four all-reduces a layer and micro-batch (arXiv:1909.08053, section 3) cannot be hidden, so they need NVLink."""
    tensor, per_node = known.value("tensor"), known.value("per_node")
    if per_node > 1 and tensor > per_node and not known.rack:
        yield Finding(
            "tp_comm_bound", WARNING, LIKELY, (),
            f"Tensor parallelism over {tensor} ranks is wider than a node of {per_node} devices, so that every layer's "
            "all-reduces cross the network between nodes.",
            (evidence(known.of["tensor"][1]), evidence(known.of["per_node"][1])),
            "The share of exposed communication in a trace of one step.",
            (f"Tensor parallelism of at most {per_node}; pipeline or sharded data parallelism between nodes.",),
            weight=2,
        )  # fmt: skip


def _zero(known: Layout, facts: Facts) -> Iterator[Finding]:
    """ZeRO-3 gathers all parameters twice a micro-batch (arXiv:1910.02054, section 7.2.2), here between nodes."""
    nodes = max(known.value("nodes"), facts.of(Nccl).nodes)
    if known.value("zero") == 3 and nodes > 1 and known.value("hpz") < 2:
        yield Finding(
            "zero3_internode", INFO, POSSIBLE, (),
            f"ZeRO-3 gathers all parameters over {nodes} nodes in every forward and backward: on a slow network "
            "this is what a step waits for.",
            (evidence(known.of["zero"][1]),), "Time per step on one node against several, at equal batch per device.",
            (
                "zero_hpz_partition_size = devices per node (ZeRO++), or HSDP: gather inside a node only.",
                "More micro-batches per step with ZeRO-2, where the model fits.",
            ),
        )  # fmt: skip
