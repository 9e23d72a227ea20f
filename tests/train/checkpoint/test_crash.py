"""A process killed at any moment of a save leaves a checkpoint that loads, to the last bit."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from meshwright.train.checkpoint import CheckpointStore, TrainState
from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.launch.pool import RankError, RankPool

from .cut_parts import differences, held

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def save(folder: Path, step: int, *, asynchronous: bool = False, keep: int = 1) -> None:
    with CheckpointStore(folder, keep=keep) as store:
        mine = held("rows", fill=True, shift=step)
        store.save(TrainState(step=step), mine.parts, mine.states, asynchronous=asynchronous)


def load_latest(folder: Path) -> int:
    """The step of the newest checkpoint, whose numbers are those of that step."""
    store = CheckpointStore(folder)
    path = store.latest()
    assert path is not None
    mine = held("rows", fill=False)
    state = store.load(path, mine.parts, mine.states)
    assert differences(mine, shift=state.step) == []
    return state.step


class Countdown:
    """Kills this process before the n-th call of the functions it guards."""

    def __init__(self, n: int) -> None:
        self.left = n

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return guarded


def save_killed(folder: Path, n: int, *, asynchronous: bool) -> bool:
    """Save step 2 in a child process that dies before its n-th change of the disk; whether it died."""
    child = os.fork()
    if child == 0:
        countdown = Countdown(n)
        for module, name in ((os, "fsync"), (os, "rename"), (os, "unlink"), (os, "rmdir"), (shutil, "rmtree")):
            setattr(module, name, countdown.guard(getattr(module, name)))
        try:
            save(folder, 2, asynchronous=asynchronous)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_kill_at_any_moment_leaves_a_good_checkpoint(tmp_path: Path, asynchronous: bool) -> None:
    steps = []
    for n in range(1, 100):
        folder = tmp_path / str(n)
        save(folder, 1)
        died = save_killed(folder, n, asynchronous=asynchronous)
        steps.append(load_latest(folder))
        if not died:
            break
    assert not died
    # Before the rename the old one is the newest, after it the new one; there are moments of both kinds.
    assert steps == sorted(steps)
    assert steps.count(1) >= 6
    assert steps.count(2) >= 3


def test_what_a_crash_left_is_removed_by_the_next_save(tmp_path: Path) -> None:
    save(tmp_path, 1)
    assert save_killed(tmp_path, 4, asynchronous=False)
    assert any(path.name.startswith(".step-00000002.tmp-") for path in tmp_path.iterdir())
    save(tmp_path, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def save_with_a_death(folder: Path) -> None:
    save(folder, 1, keep=3)
    if dist.get_rank() == 1:
        os.fsync = Countdown(1).guard(os.fsync)
    save(folder, 2, keep=3)


def test_a_rank_killed_while_saving_leaves_the_last_good_checkpoint(ranks: RankPool, tmp_path: Path) -> None:
    # What is seen first: that the rank died, or that the other one cannot reach it.
    with pytest.raises((RankError, CheckpointError)):
        ranks.run(save_with_a_death, tmp_path, world=2)
    assert ranks.run(load_latest, tmp_path, world=2) == [1, 1]
