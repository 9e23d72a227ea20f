"""Export: a checkpoint of any layout as a Hugging Face folder (safetensors, config.json), tensor by tensor."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from meshwright.train.checkpoint.architecture import architecture_from
from meshwright.train.checkpoint.boxes import MODEL, Box
from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.checkpoint.manifest import read_manifest, verify
from meshwright.train.checkpoint.metadata import CheckedReader, read_metadata
from meshwright.train.checkpoint.planner import BoxLoadPlanner
from meshwright.train.checkpoint.ranks import Ranks
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.safetensors_write import save_weights


def export_checkpoint(
    path: Path | str,
    folder: Path | str,
    *,
    architecture: Architecture | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write the model of the checkpoint at `path` into `folder`, which must be new or empty. For one process.

    `architecture`: None takes the one that the checkpoint was saved with. `dtype`: what is written; None: as saved.
    Memory: one tensor and one shard. Raises CheckpointError for a checkpoint that is missing, damaged or of another
    model, WeightsError when the folder cannot be written, and ModelError when Hugging Face has no class for the model.
    """
    path = Path(path)
    manifest = read_manifest(path)
    verify(path, manifest, Ranks(alone=True))
    metadata = read_metadata(path)
    found = architecture or architecture_from(manifest.model)
    save_weights(folder, found, lambda name: read_tensor(path, metadata, name), dtype=dtype)


def read_tensor(path: Path, metadata: Metadata, name: str) -> torch.Tensor:
    """The whole parameter `name` from the checkpoint at `path`, on the CPU. Raises CheckpointError when it has none."""
    saved = metadata.state_dict_metadata.get(MODEL + name)
    if not isinstance(saved, TensorStorageMetadata):
        raise CheckpointError(f"{path} has no parameter {name}: it is of another model.")
    tensor = torch.empty(saved.size, dtype=saved.properties.dtype)
    box = Box(MODEL + name, tuple(saved.size), (0,) * tensor.dim(), tensor)
    load({}, storage_reader=CheckedReader(path, metadata), planner=BoxLoadPlanner([box], metadata), no_dist=True)
    return tensor
