"""What a rank needs for a run, built from its Job."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.distributed as dist

from meshwright.modes.context import split_batch
from meshwright.modes.mesh import Mesh, make_mesh
from meshwright.modes.parts import Part
from meshwright.train.batch import Batch
from meshwright.train.checkpoint.architecture import architecture_json
from meshwright.train.checkpoint.store import CheckpointStore
from meshwright.train.config.job import Job
from meshwright.train.data.dataset import Dataset, open_dataset
from meshwright.train.data.loader import Loader
from meshwright.train.launch.signals import meeting_device
from meshwright.train.models.architecture import Architecture
from meshwright.train.optim.optimizer import PartOptimizer, make_optimizer
from meshwright.train.optim.scaler import LossScaler
from meshwright.train.optim.schedule import scale_lr
from meshwright.train.program import architecture_of, step_of
from meshwright.train.step import Step


@dataclass
class Setup:
    """A run's parts on this rank."""

    job: Job
    device: torch.device
    mesh: Mesh
    architecture: Architecture
    step: Step
    dataset: Dataset
    loader: Loader
    store: CheckpointStore
    scaler: LossScaler | None
    """fp16 only."""
    peak_lr: float
    tokens: int = 0
    """Target tokens of all steps so far."""

    @cached_property
    def optimizer(self) -> PartOptimizer:
        """Made when first asked for: a copy that it keeps on the host is one of the weights as they are then."""
        config = replace(self.job.config.optimizer, lr=self.peak_lr)
        host = "optimizer" in self.job.layout.offload
        return make_optimizer(self.step.parallel.parts, config, host=host)

    @property
    def kept(self) -> list[Part]:
        """What a checkpoint holds of the model."""
        return self.step.parallel.parts + self.step.parallel.buffers

    @property
    def data_rank(self) -> int:
        """Which share of each global batch is this rank's."""
        return self.mesh.index("data") // self.mesh.layout.context

    def own(self, micro_batches: list[Batch]) -> list[Batch]:
        """The tokens of this context rank, on its device."""
        layout = self.mesh.layout
        if layout.context > 1:
            micro_batches = [split_batch(batch, layout, self.mesh.index("context")) for batch in micro_batches]
        return [batch.to(self.device) for batch in micro_batches]

    def target_tokens(self, counted: int) -> int:
        """Targets of the whole step, when each data rank counted `counted`: the one normaliser of the loss."""
        data = self.mesh.layout.data
        if self.dataset.all_targets or data == 1:
            return counted * data
        group = self.mesh.group("data")
        total = torch.tensor(counted, dtype=torch.int64, device=meeting_device(group))
        dist.all_reduce(total, group=group)
        return int(total) // self.mesh.layout.context  # context ranks of one data rank counted the same sequences


def set_up(job: Job, device: torch.device) -> Setup:
    """Build everything, with fresh weights. Raises RequestError for what does not fit together."""
    config = job.config
    torch.manual_seed(config.seed)
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    architecture = architecture_of(job)
    dataset = open_dataset(config.data, vocab=architecture.model.vocab)
    mesh = make_mesh(job.layout, device)
    step = step_of(job, architecture, mesh)
    peak = scale_lr(
        config.optimizer.lr,
        config.train.global_batch,
        config.train.lr_batch or config.train.global_batch,
        config.train.lr_scaling,
    )
    data_rank = mesh.index("data") // job.layout.context
    loader = Loader(
        dataset, config.train.global_batch, job.layout.data, data_rank, job.layout.micro_batch, device=device
    )
    store = CheckpointStore(
        job.checkpoints, keep=config.checkpoint.keep, layout=str(job.layout), model=architecture_json(architecture)
    )
    scaler = LossScaler(config.train.loss_scale) if config.train.precision == "fp16" else None
    return Setup(job, device, mesh, architecture, step, dataset, loader, store, scaler, peak)
