"""A checkpoint saved under one layout holds the same numbers under any other, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from meshwright.train.checkpoint import CheckpointStore, TrainState
from meshwright.train.launch.pool import RankPool

from .cut_parts import SHAPES, STATES, differences, held, whole

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def save(folder: Path, cut: str, asynchronous: bool) -> str:
    with CheckpointStore(folder, layout=f"{cut}{dist.get_world_size()}") as store:
        mine = held(cut, fill=True)
        store.save(TrainState(step=3), mine.parts, mine.states, asynchronous=asynchronous)
        store.wait()
        return str(store.latest())


def load(path: str, cut: str) -> tuple[list[str], int]:
    store = CheckpointStore(Path(path).parent)
    mine = held(cut, fill=False)
    state = store.load(path, mine.parts, mine.states)
    return differences(mine), state.step


@pytest.mark.parametrize(("cut", "world"), [("rows", 4), ("columns", 2), ("grid", 4), ("whole", 2), ("stages", 3)])
def test_numbers_are_the_same_under_every_other_layout(ranks: RankPool, tmp_path: Path, cut: str, world: int) -> None:
    path = ranks.run(save, tmp_path, cut, world == 4, world=world)[0]
    assert Path(path).name == "step-00000003"
    for other, size in (("rows", 4), ("rows", 3), ("columns", 2), ("grid", 4), ("whole", 1), ("stages", 2)):
        assert ranks.run(load, path, other, world=size) == [([], 3)] * size


def test_copies_are_written_once(ranks: RankPool, tmp_path: Path) -> None:
    path = Path(ranks.run(save, tmp_path, "whole", False, world=4)[0])
    numbers = sum(whole(name).numel() for name in SHAPES) * (1 + len(STATES))
    tensors = len(SHAPES) * (1 + len(STATES))
    written = sum(file.stat().st_size for file in path.glob("*.distcp"))
    # torch.save adds about 1.5 KB to a tensor; four copies would hold the numbers four times.
    assert 8 * numbers < written < 8 * numbers + 2000 * tensors


def test_ranks_that_hold_copies_share_the_writing(ranks: RankPool, tmp_path: Path) -> None:
    path = Path(ranks.run(save, tmp_path, "whole", False, world=4)[0])
    sizes = sorted(file.stat().st_size for file in path.glob("*.distcp"))
    assert len(sizes) == 4
    assert sizes[-1] < 2 * sizes[0]
