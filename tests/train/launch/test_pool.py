"""The pool of ranks: results, errors, deaths and timeouts, with the pool usable after each of them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist

from meshwright.train.launch.pool import RankError, RankPool, RankTimeoutError


@dataclass
class Answer:
    rank: int
    total: torch.Tensor


def total(scale: float) -> Answer:
    x = torch.full((3,), scale * (dist.get_rank() + 1))
    dist.all_reduce(x)
    return Answer(dist.get_rank(), x)


def sent_on(answer: Answer) -> int:
    return answer.rank + dist.get_rank()


def raises_on(rank: int) -> None:
    if dist.get_rank() == rank:
        time.sleep(0.2)
        raise KeyError("mine")
    dist.all_reduce(torch.ones(1))


def exits_on(rank: int, code: int) -> None:
    if dist.get_rank() == rank:
        os._exit(code)
    dist.all_reduce(torch.ones(1))


def killed_on(rank: int) -> None:
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def a_rank_that_never_joins() -> None:
    dist.broadcast(torch.ones(3), 0)
    if dist.get_rank() == 0:
        print("rank 0 was here")
        dist.all_reduce(torch.ones(1000))
    else:
        while True:
            time.sleep(0.01)


def leaves_traces() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    os.environ["LEFT_BEHIND"] = "1"
    dist.new_group([0])
    os.chdir("/")


def traces() -> tuple[str, bool, bool, str, int]:
    made = str(torch.zeros(1).dtype)
    return made, torch.is_grad_enabled(), "LEFT_BEHIND" in os.environ, os.getcwd(), torch.get_num_threads()


class StayingError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def raises_what_cannot_travel() -> None:
    raise StayingError(1, 2)


def number() -> float:
    return float(torch.rand(()))


def meshes() -> int:
    """Sharding over a mesh: its caches must not remember the groups of the task before."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    return int((x * 2).sum().full_tensor())


def test_every_rank_of_the_asked_world_answers(ranks: RankPool) -> None:
    for world in (1, 2, 4, 3):
        answers = ranks.run(total, 0.5, world=world)
        assert [answer.rank for answer in answers] == list(range(world))
        for answer in answers:
            assert answer.total.tolist() == [0.5 * world * (world + 1) / 2] * 3


def test_arguments_may_be_of_a_class_of_the_test_file(ranks: RankPool) -> None:
    assert ranks.run(sent_on, Answer(5, torch.ones(1)), world=2) == [5, 6]


def test_functions_are_found_by_name(ranks: RankPool) -> None:
    assert ranks.run("torch.distributed:get_rank", world=3) == [0, 1, 2]


@pytest.mark.parametrize("rank", [0, 3])
def test_the_rank_that_failed_by_itself_is_shown_and_not_its_peers(ranks: RankPool, rank: int) -> None:
    with pytest.raises(KeyError, match="mine") as caught:
        ranks.run(raises_on, rank)
    cause = str(caught.value.__cause__)
    assert cause.startswith(f"rank {rank} of 4: KeyError: 'mine'")
    assert "in raises_on" in cause
    assert ranks.run(total, 1.0, world=2)[1].total.tolist() == [3.0] * 3


def test_an_exception_that_cannot_travel_is_told_in_words(ranks: RankPool) -> None:
    with pytest.raises(RankError, match="StayingError: 1 and 2"):
        ranks.run(raises_what_cannot_travel, world=1)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_exits_is_named_with_its_code_and_the_pool_goes_on(ranks: RankPool, rank: int) -> None:
    with pytest.raises(RankError, match=f"^rank {rank} of 2: ended with exit code 7"):
        ranks.run(exits_on, rank, 7, world=2)
    assert len(ranks.run(total, 1.0)) == 4


def test_a_killed_rank_is_named_with_its_signal(ranks: RankPool) -> None:
    with pytest.raises(RankError, match="rank 2 of 3: killed by SIGKILL"):
        ranks.run(killed_on, 2, world=3)


def test_a_timeout_shows_where_every_rank_stands_and_the_pool_goes_on(ranks: RankPool) -> None:
    ranks.run(total, 1.0, world=2)  # After this the ranks have this file, and are soon where they hang.
    with pytest.raises(RankTimeoutError, match="still running after 3 s: rank 0, 1 of 2") as caught:
        ranks.run(a_rank_that_never_joins, world=2, timeout=3)
    first, second = str(caught.value).split("rank 1:\n")
    assert "in all_reduce" in first
    assert "rank 0 was here" in first
    assert "broadcast over world (2 ranks), 12 bytes" in first
    assert "all-reduce over world (2 ranks), 4,000 bytes" in first
    assert "in a_rank_that_never_joins" in second
    assert "broadcast over world" in second
    assert "all-reduce" not in second
    assert len(ranks.run(total, 1.0)) == 4


def test_nothing_of_a_task_is_left_for_the_next(ranks: RankPool) -> None:
    before = ranks.run(traces, world=2)
    ranks.run(leaves_traces, world=2)
    assert ranks.run(traces, world=2) == before
    assert before[0] == ("torch.float32", True, False, os.getcwd(), 1)


def test_every_task_draws_the_same_numbers(ranks: RankPool) -> None:
    first, again = ranks.run(number, world=2), ranks.run(number, world=2)
    assert first == again
    assert first[0] == first[1]


def test_meshes_of_many_tasks_do_not_mix(ranks: RankPool) -> None:
    for world in (2, 4, 2, 3, 4):
        assert ranks.run(meshes, world=world) == [56] * world


def test_a_function_without_a_name_is_refused(ranks: RankPool) -> None:
    with pytest.raises(TypeError, match="top level"):
        ranks.run(lambda: 1)


def test_a_world_larger_than_the_pool_is_refused(ranks: RankPool) -> None:
    with pytest.raises(ValueError, match="this pool has 4 ranks"):
        ranks.run(total, 1.0, world=5)
