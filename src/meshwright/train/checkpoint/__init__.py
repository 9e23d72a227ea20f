"""Checkpoints: a run saved whole, in the background, under one layout, and resumed under any other.

`CheckpointStore` saves, finds and loads; `TrainState` is what it saves beside the tensors; `export_checkpoint` turns a
checkpoint into safetensors that Hugging Face's libraries read. On the disk a checkpoint is PyTorch's DCP format with a
manifest, which lists every file with its size and checksum.
"""

from meshwright.train.checkpoint.architecture import architecture_json
from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.checkpoint.export import export_checkpoint
from meshwright.train.checkpoint.loading import load_checkpoint
from meshwright.train.checkpoint.ranks import Ranks
from meshwright.train.checkpoint.state import TrainState, random_state, restore_random
from meshwright.train.checkpoint.store import CheckpointStore

__all__ = [
    "CheckpointError",
    "CheckpointStore",
    "Ranks",
    "TrainState",
    "architecture_json",
    "export_checkpoint",
    "load_checkpoint",
    "random_state",
    "restore_random",
]
