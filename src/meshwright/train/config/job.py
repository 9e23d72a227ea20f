"""Job: a configuration with its nouns and ranks; nothing is left open, and nothing that can't run gets this far."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meshwright.spec.cluster import Cluster
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload
from meshwright.train.config.devices import is_accelerator
from meshwright.train.config.here import Here
from meshwright.train.config.tree import TrainConfig


@dataclass(frozen=True, slots=True)
class Job:
    """What will be run."""

    config: TrainConfig
    """Resolved: layout and folder are named."""
    model: Model
    layout: Layout
    workload: Workload
    here: Here
    device: str
    """cuda or cpu."""
    cluster: Cluster | None
    """What the run is priced on: `cluster` of the configuration, or known from the GPUs' name; None: not known."""
    notes: tuple[str, ...]
    """What was chosen because nothing was said."""

    @property
    def ranks(self) -> int:
        """Processes of the job."""
        return self.layout.devices

    @property
    def for_gpus(self) -> bool:
        """Whether the cluster that it is priced on has GPUs."""
        return self.cluster is not None and is_accelerator(self.cluster.device.name)

    @property
    def micro_batches(self) -> int:
        """Of a data rank, a step."""
        return self.workload.global_batch // (self.layout.data * self.layout.micro_batch)

    @property
    def folder(self) -> Path:
        """Of the run."""
        return Path(self.config.run)

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return Path(self.config.checkpoint.dir) if self.config.checkpoint.dir else self.folder / "checkpoints"

    @property
    def backend(self) -> str:
        """nccl or gloo."""
        asked = self.config.launch.backend
        return asked if asked != "auto" else ("nccl" if self.device == "cuda" else "gloo")

    @property
    def peak_flops(self) -> float | None:
        """FLOP/s of one device in the run's precision; None: not known, and then MFU is not.

        CPU ranks that are priced on a catalogue's GPU, as in a trial on a laptop, have no known peak.
        """
        if self.cluster is None or (self.device == "cpu" and is_accelerator(self.cluster.device.name)):
            return None
        return self.cluster.device.peak_flops.get(self.workload.precision)
