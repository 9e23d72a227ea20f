"""Nothing in a checkpoint's files is run, whoever wrote them."""

from __future__ import annotations

import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader

from meshwright.train.checkpoint import CheckpointError, CheckpointStore, TrainState
from meshwright.train.checkpoint.metadata import read_metadata

from .cut_parts import held

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Evil:
    """Unpickling it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    store = CheckpointStore(tmp_path)
    mine = held("whole", fill=True)
    store.save(TrainState(step=1), mine.parts, mine.states, asynchronous=False)
    return tmp_path / "step-00000001"


def forge(checkpoint: Path, name: str, data: bytes) -> None:
    """Replace a file and make the manifest fit it, as an attacker would."""
    (checkpoint / name).write_bytes(data)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"][name] = {"size": len(data), "crc32": zlib.crc32(data)}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def load(checkpoint: Path) -> None:
    mine = held("whole", fill=False)
    CheckpointStore(checkpoint.parent).load(checkpoint, mine.parts, mine.states)


def test_a_pickle_that_runs_code_is_refused_as_metadata(checkpoint: Path, tmp_path: Path) -> None:
    forge(checkpoint, ".metadata", pickle.dumps(Evil(tmp_path / "made")))
    with pytest.raises(CheckpointError, match=r"refused: it asks for posix\.mkdir"):
        load(checkpoint)
    assert not (tmp_path / "made").exists()
    # PyTorch's own reader runs it; the test would be worth nothing otherwise.
    with pytest.raises(AttributeError):
        FileSystemReader(checkpoint).read_metadata()
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "pickled",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"ctorch\nload\n(S'x'\ntR.",
        b"ctorch.serialization\nload\n(S'x'\ntR.",
        b"ctorch.distributed.checkpoint.filesystem\nFileSystem\n(tR.",
        b"ctorch.distributed.checkpoint.metadata\nos.system\n(S'true'\ntR.",
    ],
)
def test_only_the_classes_of_metadata_are_built(checkpoint: Path, pickled: bytes) -> None:
    (checkpoint / ".metadata").write_bytes(pickled)
    with pytest.raises(CheckpointError, match="which no checkpoint needs"):
        read_metadata(checkpoint)


@pytest.mark.parametrize(
    "data", [b"", b"no pickle", pickle.dumps(None), pickle.dumps({"a": 1}), pickle.dumps([[]] * 99)]
)
def test_other_contents_are_refused_in_one_line(checkpoint: Path, data: bytes) -> None:
    (checkpoint / ".metadata").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"\.metadata is refused"):
        read_metadata(checkpoint)


def test_chunks_outside_the_folder_are_refused(checkpoint: Path) -> None:
    metadata = read_metadata(checkpoint)
    next(iter(metadata.storage_data.values())).relative_path = "../elsewhere.distcp"
    (checkpoint / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match="outside the checkpoint's folder"):
        read_metadata(checkpoint)


def test_tensor_files_that_run_code_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "evil.pt"
    torch.save(Evil(tmp_path / "made"), file)
    data = file.read_bytes()
    metadata = read_metadata(checkpoint)
    for place in metadata.storage_data.values():
        place.offset, place.length = 0, len(data)
    forge(checkpoint, ".metadata", pickle.dumps(metadata))
    forge(checkpoint, "__0_0.distcp", data)
    with pytest.raises(CheckpointError, match="could not be read"):
        load(checkpoint)
    assert not (tmp_path / "made").exists()


def test_pytorch_reads_what_is_saved(checkpoint: Path) -> None:
    wanted = {"model/norm.weight": torch.zeros(6, dtype=torch.float64)}
    torch.distributed.checkpoint.load(wanted, checkpoint_id=checkpoint, no_dist=True)
    (norm,) = (part for part in held("whole", fill=True).parts if part.name == "norm.weight")
    assert torch.equal(wanted["model/norm.weight"], norm.data)
