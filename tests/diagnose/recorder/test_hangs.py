"""Who hung a job: dumps of a real 16-rank job with injected faults, and real gloo dumps made here."""

from __future__ import annotations

import json
import pickle
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, ERROR, POSSIBLE, WARNING, Finding
from meshwright.train.launch.pool import RankPool

SHARED = Path(__file__).parents[4] / "shared" / "data" / "diagnosis" / "flight_recorder"


@pytest.mark.parametrize(("scenario", "seen"), [("gpu_error_1st", {12}), ("lock_gil_1st", {9, 14})])
def test_of_a_megatron_job_with_injected_faults_the_faulty_ranks_are_named_and_no_other(
    scenario: str, seen: set[int]
) -> None:
    if not (SHARED / scenario).is_dir():
        pytest.skip("the dumps are not beside this checkout")
    # In the first scenario rank 14 failed too, but its dump shows that it had entered all that others waited in.
    found = diagnose([SHARED / scenario])
    assert {rank for one in found.findings for rank in one.ranks} == seen
    assert {one.severity for one in found.findings} == {ERROR}


def healthy(rank: int) -> None:
    for _ in range(3):
        dist.all_reduce(torch.ones(4))


def missing(rank: int) -> None:
    healthy(rank)
    if rank != 2:
        dist.all_reduce(torch.ones(4), async_op=True)


def rank_zero_is_odd(rank: int) -> None:
    healthy(rank)
    if rank:
        dist.all_reduce(torch.ones(4), async_op=True)


def wrong_size(rank: int) -> None:
    healthy(rank)
    dist.all_reduce(torch.ones(5 if rank == 0 else 4), async_op=True)


def wrong_type(rank: int) -> None:
    healthy(rank)
    if rank == 1:
        dist.all_gather([torch.ones(4) for _ in range(3)], torch.ones(4), async_op=True)
    else:
        dist.all_reduce(torch.ones(4), async_op=True)


def pipeline_of_unequal_history(rank: int) -> None:
    """Stages that share a group with their neighbour. Rank 0 stops; 1 waits for it, and so never comes to 2's group."""
    front, back = dist.new_group([0, 1]), dist.new_group([1, 2])
    for _ in range(5 if rank < 2 else 0):
        dist.all_reduce(torch.ones(4), group=front)
    for _ in range(2 if rank else 0):
        dist.all_reduce(torch.ones(4), group=back)
    if rank:
        dist.all_reduce(torch.ones(4), group=front if rank == 1 else back, async_op=True)


def uneven_inputs(rank: int) -> None:
    """Rank 1 has one batch fewer than the others; each step sends two gradients after some work."""
    for _ in range(5 if rank == 1 else 6):
        time.sleep(0.02)
        dist.all_reduce(torch.ones(64), async_op=True)
        work = dist.all_reduce(torch.ones(32), async_op=True)
        if work is not None and (rank == 1 or _ < 5):
            work.wait()


def straggler(rank: int) -> None:
    for _ in range(12):
        time.sleep(0.02 + 0.05 * (rank == 2))
        dist.all_reduce(torch.ones(64))
        dist.all_reduce(torch.ones(32))


def _dump(scenario: str, as_json: bool) -> bytes:
    """Of a rank that has just run a scenario: everything it has recorded."""
    globals()[scenario](dist.get_rank())
    # Ranks that others wait for must not leave before they have entered what they wait in.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {dist.get_rank()}", "")
    store.wait([f"done {other}" for other in range(dist.get_world_size())])
    recorder: Any = torch._C._distributed_c10d
    dump = recorder._dump_fr_trace_json(True, False) if as_json else recorder._dump_fr_trace(True, True, False)
    return dump.encode() if isinstance(dump, str) else dump


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    """Ranks whose process groups have recorded nothing yet: `renew` before each scenario."""
    with RankPool(3) as ranks:
        yield ranks


def dumps_of(pool: RankPool, scenario: Callable[[int], None], folder: Path, *, as_json: bool = False) -> Path:
    pool.renew()
    (folder / "dumps").mkdir()
    for rank, data in enumerate(pool.run(_dump, scenario.__name__, as_json)):
        (folder / "dumps" / f"rank_{rank}").write_bytes(data)
    return folder / "dumps"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_rank_that_missed_a_collective_is_named_and_no_other(pool: RankPool, tmp_path: Path, as_json: bool) -> None:
    (one,) = diagnose([dumps_of(pool, missing, tmp_path, as_json=as_json)]).findings
    assert (one.ranks, one.confidence) == ((2,), CERTAIN)
    assert "all_reduce" in one.cause


@pytest.mark.parametrize(
    ("scenario", "ranks", "word"),
    [
        (rank_zero_is_odd, (0,), "rank 0"),
        (wrong_size, (0,), "size"),
        (wrong_type, (1,), "operation"),
        (pipeline_of_unequal_history, (0,), "rank 0"),
    ],
)
def test_the_odd_rank_is_named_whichever_it_is(
    pool: RankPool, scenario: Callable[[int], None], ranks: tuple[int, ...], word: str, tmp_path: Path
) -> None:
    (one,) = diagnose([dumps_of(pool, scenario, tmp_path)]).findings
    assert one.ranks == ranks
    assert word in one.cause


def test_of_a_healthy_job_nothing_is_said(pool: RankPool, tmp_path: Path) -> None:
    found = diagnose([dumps_of(pool, healthy, tmp_path)])
    assert found.findings == ()
    assert found.checked


def test_a_rank_that_ran_out_of_batches_is_named_with_what_it_did_not_begin(pool: RankPool, tmp_path: Path) -> None:
    (one,) = diagnose([dumps_of(pool, uneven_inputs, tmp_path)]).findings
    assert (one.category, one.ranks) == ("uneven_inputs", (1,))
    assert "input 64" in one.cause


def test_a_rank_that_comes_late_in_every_step_is_named_with_its_delay(pool: RankPool, tmp_path: Path) -> None:
    (one,) = diagnose([dumps_of(pool, straggler, tmp_path)]).findings
    assert (one.category, one.ranks, one.severity) == ("straggler_cpu", (2,), WARNING)
    milliseconds = int(re.search(r"by (\d+) ms", one.cause)[1])  # type: ignore[index]
    assert milliseconds == pytest.approx(50, rel=0.25)


def nccl(rank: int, *entries: dict[str, Any]) -> bytes:
    """A dump by hand, with what NCCL's have."""
    ranks = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    common = {
        "process_group": ("0", "default_pg"), "p2p_seq_id": 0, "profiling_name": "nccl:all_reduce",
        "state": "scheduled", "input_sizes": [[4]], "output_sizes": [[4]], "input_dtypes": ["Float"],
        "time_created_ns": 1, "frames": [],
    }  # fmt: skip
    return pickle.dumps({"version": "2.9", "pg_config": ranks, "entries": [common | entry for entry in entries]})


def found_in(folder: Path, **dumps: bytes) -> tuple[Finding, ...]:
    for name, data in dumps.items():
        (folder / name).write_bytes(data)
    return diagnose([folder]).findings


def test_a_rank_without_a_dump_is_waited_for(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, r0=nccl(0, {"collective_seq_id": 7}), r1=nccl(1, {"collective_seq_id": 7}))
    assert one.ranks == (2,)
    assert one.confidence != CERTAIN
    assert "left no dump" in one.cause


def test_two_ranks_that_differ_are_both_possible(tmp_path: Path) -> None:
    (one,) = found_in(
        tmp_path, r0=nccl(0, {"collective_seq_id": 7}), r1=nccl(1, {"collective_seq_id": 7, "input_sizes": [[5]]})
    )
    assert (one.ranks, one.confidence) == ((0, 1), POSSIBLE)


def test_ranks_that_wait_for_each_other_are_a_circle(tmp_path: Path) -> None:
    send = {"collective_seq_id": 0, "p2p_seq_id": 3, "profiling_name": "nccl:recv 0<-1"}
    back = {"collective_seq_id": 0, "p2p_seq_id": 3, "profiling_name": "nccl:recv 1<-0"}
    (one,) = found_in(tmp_path, r0=nccl(0, send), r1=nccl(1, back))
    assert (one.category, one.ranks) == ("p2p_ordering", (0, 1))


def test_a_hostile_pickle_runs_nothing_and_is_listed(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "r3").write_bytes(pickle.dumps(Hostile()))
    done = {"collective_seq_id": 7, "state": "completed"}
    (tmp_path / "r0").write_bytes(nccl(0, done))
    found = diagnose([tmp_path])
    assert not (tmp_path / "ran").exists()
    assert [one.problem != "" for one in found.inputs] == [False, True]


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\x80\x04", b"{", b"{}", b"\xff\xfe\x00", json.dumps({"version": 1, "entries": [3]}).encode(),
     nccl(0, {"collective_seq_id": 7})[:-9], nccl(0, {"collective_seq_id": "x"}), b"[" * 100_000],
)  # fmt: skip
def test_a_damaged_file_is_listed_with_its_problem(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "r0").write_bytes(nccl(0, {"collective_seq_id": 7, "state": "completed"}))
    (tmp_path / "r1").write_bytes(data)
    found = diagnose([tmp_path])
    assert [one.path for one in found.inputs if one.problem] == [str(tmp_path / "r1")]
