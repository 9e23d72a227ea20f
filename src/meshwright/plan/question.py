"""Question: what a search is asked."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.spec.cluster import Cluster
from meshwright.spec.implementation import Implementation, load_implementation
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Question:
    """One model's work on so many devices of a cluster."""

    model: Model
    cluster: Cluster
    workload: Workload
    devices: int
    """Devices that the layouts use: all of the cluster, or fewer."""
    offload: bool = False
    """Layouts that keep states on the host count too."""
    by_memory: bool = False
    """The leanest layouts are wanted, not the fastest."""
    runtime: str | None = None
    """The one that must run the layouts (see `spec.rules`); None: any, or none as it stands."""

    @property
    def software(self) -> Implementation:
        """The class of software that the workload names."""
        return load_implementation(self.workload.implementation)

    @property
    def spare(self) -> bool:
        """Whether devices of the cluster are left over."""
        return self.devices < self.cluster.devices
