"""Which layouts this package's own runtime runs: PyTorch's rules, what it lifts of them, and what it does not have."""

from __future__ import annotations

from meshwright.spec.cluster import Cluster
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

RUNTIME = "pytorch"
LIFTED = ("torchtitan's expert ranks exceed shard × context × tensor",)
"""Reasons of rules that bind PyTorch's own libraries but not `modes`: experts spread over replicas, too."""


def check_runs(model: Model, cluster: Cluster, workload: Workload, layout: Layout) -> None:
    """Raises LayoutError, with the nearest legal values, for a layout that training would not run as it is written.

    `cluster` has as many devices as there are ranks.
    """
    from meshwright.spec.rules import violations

    if layout.servers:
        workers = f"ddp{layout.replicate}"
        raise LayoutError("Training sums gradients by collectives; it has no parameter servers.", (workers,))
    found = [v for v in violations(model, cluster, workload, layout) if RUNTIME in v.refused_by]
    binding = [v for v in found if v.reason not in LIFTED]
    if binding:
        others = "".join(f" Also: {v.reason}." for v in binding[1:])
        raise LayoutError(binding[0].message + others, binding[0].legal)
