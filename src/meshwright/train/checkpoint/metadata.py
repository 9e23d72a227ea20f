"""DCP's `.metadata`, read without trusting it.

PyTorch writes it as a pickle and reads it with `pickle.load`, which runs whatever the file says. Here an unpickler that
knows only the few classes of which honest metadata consists reads it, and refuses the rest.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata

from meshwright.train.checkpoint.errors import CheckpointError

METADATA_FILE = ".metadata"

_STRIDED = {str(torch.strided): torch.strided}
_ALLOWED: dict[tuple[str, str], Any] = {
    (metadata.__name__, name): getattr(metadata, name)
    for name in (
        "Metadata",
        "MetadataIndex",
        "TensorStorageMetadata",
        "ChunkStorageMetadata",
        "TensorProperties",
        "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    )
}
_ALLOWED[filesystem.__name__, "_StorageInfo"] = _StorageInfo
_ALLOWED["torch", "Size"] = torch.Size
_ALLOWED["torch.serialization", "_get_layout"] = lambda name: _STRIDED[name]
_ALLOWED |= {("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


class _Unpickler(pickle.Unpickler):
    """Builds the classes of DCP's metadata and nothing else; calls no function that could do harm."""

    def find_class(self, module: str, name: str) -> Any:
        """The class, if it is one of the few."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no checkpoint needs") from None


def read_metadata(directory: Path) -> Metadata:
    """The metadata of the checkpoint in `directory`: tensors, their chunks, and where each chunk lies.

    Raises CheckpointError when the file is missing, damaged, or holds anything but such metadata; nothing in it runs.
    """
    path = directory / METADATA_FILE
    try:
        with path.open("rb") as file:
            found = _Unpickler(file).load()
        _check(found, directory)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: this is no whole checkpoint.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # a damaged pickle raises almost anything
        raise CheckpointError(f"{path} is refused: {error}.") from error
    return found  # type: ignore[no-any-return]


def _check(found: Any, directory: Path) -> None:
    """Raises ValueError unless every field that is used later has the right kind of value."""
    if not isinstance(found, Metadata) or not isinstance(found.storage_data, dict):
        raise ValueError("it holds no metadata of a checkpoint")
    for key, tensor in found.state_dict_metadata.items():
        if not isinstance(key, str) or not isinstance(tensor, TensorStorageMetadata):
            raise ValueError(f"{key!r} is no tensor")
        for chunk in tensor.chunks:
            if not isinstance(chunk, ChunkStorageMetadata) or not _inside(chunk, tensor.size):
                raise ValueError(f"{key!r} has a chunk outside its shape")
    for place in found.storage_data.values():
        if not isinstance(place, _StorageInfo) or Path(place.relative_path).name != place.relative_path:
            raise ValueError("a chunk lies outside the checkpoint's folder")
        if getattr(place, "transform_descriptors", None):
            raise ValueError("its chunks are compressed or encrypted, which is not supported")


def _inside(chunk: ChunkStorageMetadata, shape: torch.Size) -> bool:
    return len(chunk.offsets) == len(chunk.sizes) == len(shape) and all(
        min(start, length) >= 0 and start + length <= whole
        for start, length, whole in zip(chunk.offsets, chunk.sizes, shape, strict=True)
    )


class CheckedReader(FileSystemReader):
    """DCP's reader, given metadata that was read safely. It reads tensors by `torch.load(weights_only=True)`."""

    def __init__(self, directory: Path, found: Metadata) -> None:
        super().__init__(directory)
        self._found = found

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The metadata given."""
        return self._found
