"""What PyTorch itself prints, made here with gloo, when ranks disagree or do not come."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, LIKELY, Finding

RANKS = 3


def missing_from_the_barrier(rank: int) -> None:
    if rank != 2:
        dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)


def other_shape(rank: int) -> None:
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(2000 if rank == 1 else 1000))


def barrier_of_one(rank: int) -> None:
    dist.barrier() if rank == 1 else dist.all_reduce(torch.ones(5000))


SCENARIOS = (other_shape, barrier_of_one, missing_from_the_barrier)
"""In this order in one group: the first two are refused before anything is sent, the third one breaks the group."""


def _run(rank: int, folder: str) -> None:
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=20))
    for scenario in SCENARIOS:
        try:
            scenario(rank)
        except RuntimeError as error:
            log = Path(folder) / scenario.__name__ / f"rank_{rank}.log"
            log.write_text(f"[rank{rank}]: RuntimeError: {error}\n")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for scenario in SCENARIOS:
        (folder / scenario.__name__).mkdir()
    before = os.environ.get("TORCH_DISTRIBUTED_DEBUG")
    os.environ.update(TORCH_DISTRIBUTED_DEBUG="DETAIL", TORCH_CPP_LOG_LEVEL="ERROR")
    try:
        multiprocessing.spawn(_run, (str(folder),), nprocs=RANKS)
    finally:
        os.environ.pop("TORCH_DISTRIBUTED_DEBUG")
        if before is not None:
            os.environ["TORCH_DISTRIBUTED_DEBUG"] = before
    return folder


def first_of(logs: Path, scenario: Callable[[int], None]) -> Finding:
    return diagnose([logs / scenario.__name__]).findings[0]


def test_a_rank_that_did_not_come_to_a_monitored_barrier_is_named(logs: Path) -> None:
    found = first_of(logs, missing_from_the_barrier)
    assert (found.category, found.confidence, found.ranks) == ("rank_conditional_collective", LIKELY, (2,))


def test_a_tensor_of_another_shape_is_certain_and_its_rank_named(logs: Path) -> None:
    found = first_of(logs, other_shape)
    assert (found.category, found.confidence, found.ranks) == ("mismatched_collectives", CERTAIN, (1,))


def test_a_barrier_against_a_gradient_is_a_branch(logs: Path) -> None:
    found = first_of(logs, barrier_of_one)
    assert (found.category, found.confidence, found.ranks) == ("mismatched_collectives", CERTAIN, (1,))


def test_a_fingerprint_without_its_shape_is_read(tmp_path: Path) -> None:
    # deepspeedai/DeepSpeed#7568. PyTorch misreads the other rank's fingerprint where the numbers of tensors differ (a
    # barrier is told as REDUCE, see above), so its operation is not believed.
    (tmp_path / "job.log").write_text(
        "[rank2]: RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=32, OpType=ALLREDUCE, TensorShape=[], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))), but Rank 3 is "
        "running collective: CollectiveFingerPrint(SequenceNumber=0OpType=GATHER).Collectives differ in the following "
        "aspects: Sequence number: 32vs 0  Op type: ALLREDUCEvs GATHER\n"
    )
    (first, *_) = diagnose([tmp_path]).findings
    assert (first.category, first.confidence, first.ranks) == ("mismatched_collectives", CERTAIN, (2, 3))
    assert "GATHER" not in first.cause


def test_more_ranks_that_failed_to_pass_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms\n")
    (first, *_) = diagnose([tmp_path]).findings
    assert (first.category, first.ranks) == ("rank_conditional_collective", (1, 3))
    assert "5 s" in first.cause
