"""A disk without room is noticed before writing, or reported by all ranks; earlier checkpoints stay as they are."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch.distributed as dist

from meshwright.train.checkpoint import CheckpointError, CheckpointStore, TrainState
from meshwright.train.launch.pool import RankPool

from .cut_parts import SHAPES, STATES, differences, held, whole

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def save(store: CheckpointStore, step: int, cut: str = "whole") -> None:
    mine = held(cut, fill=True)
    store.save(TrainState(step=step), mine.parts, mine.states)


def assert_loads(store: CheckpointStore, step: int, cut: str = "whole") -> None:
    mine = held(cut, fill=False)
    path = store.latest()
    assert path is not None
    assert store.load(path, mine.parts, mine.states).step == step
    assert differences(mine) == []


def test_no_room_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 1)
    store.wait()
    numbers = 8 * sum(whole(name).numel() for name in SHAPES) * (1 + len(STATES))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - numbers, numbers))
        with pytest.raises(CheckpointError, match=r"No room for a checkpoint of step 2: it needs .* has .* free"):
            save(store, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert_loads(store, 1)


def test_a_run_that_could_not_save_is_told_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = held("whole", fill=True)
    CheckpointStore(tmp_path).check(mine.parts, mine.states)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 0))
    with pytest.raises(CheckpointError, match="No room for a checkpoint"):
        CheckpointStore(tmp_path).check(mine.parts, mine.states)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_of_at_most(count: int) -> Iterator[None]:
    """The system refuses to let any file of this process grow further, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_while_writing_is_told_by_the_next_call(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)
    store.wait()
    with files_of_at_most(4096):
        save(store, 2)  # returns: the writing goes on behind
        with pytest.raises(CheckpointError, match=r"checkpoint of step 2 was not saved: .*File too large"):
            store.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert_loads(store, 1)
    save(store, 3)  # told once, and the store goes on
    assert_loads(store, 3)


def save_where_one_rank_fails(folder: Path) -> tuple[str, str]:
    store = CheckpointStore(folder)
    save(store, 1, "rows")
    store.wait()
    message = ""
    with files_of_at_most(4096 if dist.get_rank() == 1 else 2**30):
        save(store, 2, "rows")
        try:
            save(store, 3, "rows")
        except CheckpointError as error:
            message = str(error)
    assert_loads(store, 1, "rows")
    return message, sorted(path.name for path in folder.iterdir())[0]


def test_all_ranks_tell_what_one_of_them_met(ranks: RankPool, tmp_path: Path) -> None:
    told: list[Any] = ranks.run(save_where_one_rank_fails, tmp_path, world=2)
    assert told[0] == told[1]
    message, kept = told[0]
    assert "step 2 was not saved: rank 1: " in message
    assert "File too large" in message
    assert kept == "step-00000001"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"Cannot write checkpoints to .*file/inside: Not a directory"):
        save(CheckpointStore(tmp_path / "file" / "inside"), 1)
