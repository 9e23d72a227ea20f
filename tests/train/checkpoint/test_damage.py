"""A damaged or missing checkpoint is told of by its file, before anything is overwritten."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from meshwright.train.checkpoint import CheckpointError, CheckpointStore, TrainState

from .cut_parts import held

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def save(folder: Path, *steps: int) -> Path:
    store = CheckpointStore(folder, keep=9)
    for step in steps:
        mine = held("whole", fill=True)
        store.save(TrainState(step=step), mine.parts, mine.states)
    path = store.latest()
    assert path is not None
    return path


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: list[tuple[str, Callable[[Path], None], str]] = [
    ("__0_0.distcp", truncate, "__0_0.distcp has"),
    ("__0_0.distcp", Path.unlink, "__0_0.distcp is missing"),
    ("__0_0.distcp", flip, "__0_0.distcp holds other bytes"),
    (".metadata", truncate, ".metadata has"),
    (".metadata", flip, ".metadata holds other bytes"),
    (".metadata", Path.unlink, ".metadata is missing"),
    ("state.json", flip, "state.json holds other bytes"),
    ("manifest.json", truncate, "manifest.json is damaged"),
    ("manifest.json", Path.unlink, "has no manifest.json"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES)
def test_damage_is_named_and_nothing_is_overwritten(
    tmp_path: Path, name: str, damage: Callable[[Path], None], message: str
) -> None:
    path = save(tmp_path, 1)
    damage(path / name)
    mine = held("whole", fill=False)
    with pytest.raises(CheckpointError, match=message):
        CheckpointStore(tmp_path).load(path, mine.parts, mine.states)
    for part in mine.parts:
        assert torch.isnan(part.data).all()


def test_a_checkpoint_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"There is no checkpoint .*step-00000009"):
        CheckpointStore(tmp_path).load(tmp_path / "step-00000009", [])


def test_resuming_passes_over_a_damaged_checkpoint_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(tmp_path, 1, 2)
    truncate(path / "__0_0.distcp")
    with caplog.at_level(logging.WARNING):
        assert CheckpointStore(tmp_path).latest() == tmp_path / "step-00000001"
    assert "step-00000002 is damaged: __0_0.distcp has" in caplog.text


def test_resuming_never_starts_anew_beside_damaged_checkpoints(tmp_path: Path) -> None:
    truncate(save(tmp_path, 1) / "__0_0.distcp")
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* is whole"):
        CheckpointStore(tmp_path).latest()


def test_pruning_counts_whole_checkpoints_only(tmp_path: Path) -> None:
    truncate(save(tmp_path, 1, 2) / "__0_0.distcp")
    store = CheckpointStore(tmp_path, keep=2)
    mine = held("whole", fill=True)
    store.save(TrainState(step=3), mine.parts, mine.states)
    store.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-0000000{n}" for n in (1, 2, 3)]


def test_resuming_passes_over_a_checkpoint_with_other_bytes_of_the_same_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(tmp_path, 1, 2)
    flip(path / "__0_0.distcp")
    with caplog.at_level(logging.WARNING):
        assert CheckpointStore(tmp_path).latest() == tmp_path / "step-00000001"
    assert "step-00000002 is damaged: __0_0.distcp holds other bytes" in caplog.text
    assert path.is_dir()


def test_resuming_never_starts_anew_beside_checkpoints_with_other_bytes(tmp_path: Path) -> None:
    flip(save(tmp_path, 1) / "__0_0.distcp")
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* is whole\. .* holds other bytes"):
        CheckpointStore(tmp_path).latest()
