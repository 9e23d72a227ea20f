"""A stop that one rank is asked for is a stop of all ranks after the same step."""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist

from meshwright.train.launch.pool import RankPool
from meshwright.train.launch.signals import StopFlag


def steps_until_stopped(asked_rank: int, at_step: int) -> tuple[int, str | None]:
    with StopFlag() as stop:
        for step in range(100):
            dist.all_reduce(torch.ones(1))
            if step == at_step and dist.get_rank() == asked_rank:
                os.kill(os.getpid(), signal.SIGTERM)
            if stop.agree():
                return step, stop.reason
    return -1, None


def stops_of_halves() -> bool:
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    with StopFlag() as stop:
        if dist.get_rank() == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return stop.agree(halves[dist.get_rank() // 2])


def test_all_ranks_stop_after_the_same_step(ranks: RankPool) -> None:
    assert ranks.run(steps_until_stopped, 2, 5, world=3) == [(5, None), (5, None), (5, "SIGTERM")]


def test_a_group_agrees_about_its_own_ranks(ranks: RankPool) -> None:
    assert ranks.run(stops_of_halves, world=4) == [False, False, True, True]


def test_a_second_signal_changes_nothing_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopFlag() as stop:
        assert not stop.agree()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.agree()
        assert stop.reason == "SIGINT"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_ctrl_c_interrupts_a_process_that_a_person_sees() -> None:
    with StopFlag(insist=True) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
