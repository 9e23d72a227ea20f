"""Saving in the background, keeping the newest, and finding them again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import meshwright
from meshwright.train.checkpoint import CheckpointError, CheckpointStore, TrainState
from meshwright.train.launch.pool import RankPool

from .cut_parts import differences, held

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def save(folder: Path, *steps: int, keep: int = 3) -> list[str]:
    with CheckpointStore(folder, keep=keep) as store:
        for step in steps:
            mine = held("whole", fill=True, shift=step)
            store.save(TrainState(step=step), mine.parts, mine.states)
    return sorted(path.name for path in folder.iterdir())


def saved_shift(folder: Path) -> int:
    """The step of the newest checkpoint; its numbers are those of that step."""
    store = CheckpointStore(folder)
    path = store.latest()
    assert path is not None
    mine = held("whole", fill=False)
    step = store.load(path, mine.parts, mine.states).step
    assert differences(mine, shift=step) == []
    return step


def save_then_change(folder: Path) -> list[str]:
    store = CheckpointStore(folder)
    mine = held("rows", fill=True)
    store.save(TrainState(step=1), mine.parts, mine.states)
    for part in mine.parts:
        part.data.fill_(-1)
    for state in mine.states:
        state.tensor.fill_(-1)
    store.save(TrainState(step=2), mine.parts, mine.states)  # the buffers are used again
    store.wait()
    wrong = []
    loaded = held("rows", fill=False)
    store.load(folder / "step-00000001", loaded.parts, loaded.states)
    wrong += differences(loaded)
    store.load(folder / "step-00000002", loaded.parts, loaded.states)
    wrong += [part.name for part in loaded.parts if not (part.data == -1).all()]
    return wrong


@pytest.mark.parametrize("world", [1, 4])
def test_a_save_in_the_background_does_not_see_later_steps(ranks: RankPool, tmp_path: Path, world: int) -> None:
    assert ranks.run(save_then_change, tmp_path, world=world) == [[]] * world


def test_the_newest_are_kept(tmp_path: Path) -> None:
    assert save(tmp_path, 10, 20, 30, 40, keep=2) == ["step-00000030", "step-00000040"]
    assert saved_shift(tmp_path) == 40


def test_a_run_that_went_back_resumes_from_what_it_saved_last(tmp_path: Path) -> None:
    save(tmp_path, 10, 20, 30)
    assert save(tmp_path, 15, keep=2) == ["step-00000015", "step-00000030"]
    assert saved_shift(tmp_path) == 15


def test_a_step_saved_again_replaces_the_earlier_save(tmp_path: Path) -> None:
    save(tmp_path, 10)
    assert save(tmp_path, 10) == ["step-00000010-2"]
    assert saved_shift(tmp_path) == 10
    assert save(tmp_path, 10) == ["step-00000010"]


def test_an_empty_folder_has_no_latest(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "none").latest() is None


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "step-by-step.txt").write_text("")
    (tmp_path / ".step-00000001.tmp-abc.txt").write_text("")
    assert {"notes", "step-by-step.txt", ".step-00000001.tmp-abc.txt"} < set(save(tmp_path, 1, 2, keep=1))


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="1 or more"):
        CheckpointStore(tmp_path, keep=0)


def test_the_manifest_says_what_was_saved(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, layout="fsdp1", model={"hidden": 6})
    mine = held("whole", fill=True)
    store.save(TrainState(step=7), mine.parts, asynchronous=False)
    path = tmp_path / "step-00000007"
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["step"], manifest["layout"], manifest["world_size"]) == (7, "fsdp1", 1)
    assert (manifest["model"], manifest["meshwright"]) == ({"hidden": 6}, meshwright.__version__)
    assert manifest["torch"] == torch.__version__
    sizes = {file.name: file.stat().st_size for file in path.iterdir() if file.name != "manifest.json"}
    assert {name: facts["size"] for name, facts in manifest["files"].items()} == sizes


def save_random(folder: Path) -> list[float]:
    from meshwright.train.checkpoint import random_state

    torch.manual_seed(dist.get_rank())
    torch.rand(3)
    with CheckpointStore(folder, layout="ddp2") as store:
        mine = held("whole", fill=True)
        store.save(TrainState(step=5, seed=11, random=random_state()), mine.parts, mine.states)
    return torch.rand(4).tolist()


def load_random(path: Path, layout: str, stream: int) -> list[float]:
    from meshwright.train.checkpoint import restore_random

    store = CheckpointStore(path.parent, layout=layout)
    mine = held("whole", fill=False)
    restore_random(store.load(path, mine.parts, mine.states), stream)
    return torch.rand(4).tolist()


def test_every_rank_goes_on_with_its_random_numbers(ranks: RankPool, tmp_path: Path) -> None:
    drawn = ranks.run(save_random, tmp_path, world=2)
    assert drawn[0] != drawn[1]
    assert ranks.run(load_random, tmp_path / "step-00000005", "ddp2", 0, world=2) == drawn


def test_under_another_layout_random_numbers_follow_from_seed_step_and_stream(ranks: RankPool, tmp_path: Path) -> None:
    drawn = ranks.run(save_random, tmp_path, world=2)
    path = tmp_path / "step-00000005"
    first, second = ranks.run(load_random, path, "tp2", 3, world=2)
    assert first == second
    assert first not in drawn
    assert ranks.run(load_random, path, "ddp4", 3, world=4) == [first] * 4
    assert ranks.run(load_random, path, "ddp1", 4, world=1) != [first]
