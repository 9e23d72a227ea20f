"""Who left the common order, from the watchdog's lines alone. Lines are of public issues where one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, POSSIBLE, Finding

GATHER_313 = (  # meta-pytorch/torchtune#1107
    "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=313, "
    "OpType=_ALLGATHER_BASE, NumelIn=262668288, NumelOut=525336576, Timeout(ms)=600000) ran for 600010 milliseconds "
    "before timing out."
)
REDUCE_315 = (
    "[rank0]:[E ProcessGroupNCCL.cpp:563] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=315, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600095 milliseconds before timing out.\n"
    "[rank0]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 0] Timeout at NCCL work: 315, last enqueued NCCL work: 315, last "
    "completed NCCL work: 314."
)
DEFAULT = "PG ID 0 PG GUID 0(default_pg)"


def given_up(
    rank: int, number: int, operation: str = "ALLREDUCE", elements: int = 9801523, *, group: str = DEFAULT,
    own: int | None = None, enqueued: int | None = None, clock: str = "06:24:44",
) -> str:  # fmt: skip
    """As torch 2.6 prints it (the numbers of XPixelGroup/BasicSR#737)."""
    own = rank if own is None else own
    last = number if enqueued is None else enqueued
    return (
        f"[rank{rank}]:[E626 {clock}.903881913 ProcessGroupNCCL.cpp:632] [Rank {own}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn={elements}, NumelOut={elements}, "
        "Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
        f"[rank{rank}]:[E626 {clock}.904881913 ProcessGroupNCCL.cpp:2271] [{group} Rank {own}]  failure detected by "
        f"watchdog at work sequence id: {number} PG status: last enqueued work: {last}, last completed "
        f"work: {number - 1}\n"
    )


def told_to_dump(rank: int, enqueued: int, completed: int) -> str:
    """A rank that waits in nothing prints its state when another one gives up (torch 2.5)."""
    return (
        f"[rank{rank}]:[E626 06:24:45.1 ProcessGroupNCCL.cpp:1746] [{DEFAULT} Rank {rank}] Received a dump signal "
        f"due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last enqueued NCCL "
        f"work: {enqueued}, last completed NCCL work: {completed}.This is most likely caused by incorrect usages\n"
    )


def findings(folder: Path, text: str) -> tuple[Finding, ...]:
    (folder / "job.log").write_text(text)
    return diagnose([folder]).findings


def test_a_scalar_on_one_rank_against_a_tensor_on_the_other_is_a_branch(tmp_path: Path) -> None:
    (first, *_) = findings(tmp_path, f"{GATHER_313}\n{REDUCE_315}\n")
    assert (first.category, first.confidence, first.ranks) == ("rank_conditional_collective", POSSIBLE, (0, 1))
    assert "313" in first.cause
    assert "315" in first.cause
    assert {(one.line, one.rank) for one in first.evidence} == {(1, 1), (2, 0)}


def test_of_other_sizes_at_the_same_number_the_minority_is_the_culprit(tmp_path: Path) -> None:
    text = "".join(given_up(rank, 404, elements=1025 if rank == 2 else 262144) for rank in range(4))
    (first, *_) = findings(tmp_path, text)
    assert (first.category, first.confidence, first.ranks) == ("mismatched_collectives", CERTAIN, (2,))


def test_an_odd_rank_zero_is_named_and_not_the_others(tmp_path: Path) -> None:
    text = "".join(given_up(rank, 7, "_ALLGATHER_BASE" if rank == 0 else "ALLREDUCE") for rank in range(4))
    (first, *_) = findings(tmp_path, text)
    assert (first.category, first.confidence, first.ranks) == ("mismatched_collectives", CERTAIN, (0,))


def test_a_barrier_at_the_number_of_a_gradient_is_a_branch_that_one_rank_took(tmp_path: Path) -> None:
    text = "".join(given_up(rank, 90, elements=1 if rank == 0 else 2_000_000) for rank in range(3))
    (first, *_) = findings(tmp_path, text)
    assert (first.category, first.confidence, first.ranks) == ("rank_conditional_collective", POSSIBLE, (0,))


def test_all_to_alls_may_differ_in_size(tmp_path: Path) -> None:
    text = "".join(given_up(rank, 12, "ALLTOALL_BASE", 1000 + rank) for rank in range(4))
    assert all(one.category != "mismatched_collectives" for one in findings(tmp_path, text))


@pytest.mark.parametrize(
    ("operation", "elements", "category"),
    [("ALLREDUCE", 9801523, "uneven_inputs"), ("BROADCAST", 4, "rank_conditional_collective")],
)
def test_a_rank_that_had_completed_all_and_is_behind_is_the_culprit(
    tmp_path: Path, operation: str, elements: int, category: str
) -> None:
    waiting = "".join(given_up(rank, 808, operation, elements, enqueued=811) for rank in (0, 1, 2))
    (first, *_) = findings(tmp_path, waiting + told_to_dump(3, 805, 805))
    assert (first.category, first.confidence, first.ranks) == (category, POSSIBLE, (3,))
    assert "3 behind" in first.cause


def test_the_rank_in_the_job_and_the_rank_in_the_group_are_not_mixed(tmp_path: Path) -> None:
    # NVIDIA/nccl#1610: `[rank13]: … [Rank 1]`. Rank 13 is the second of its group, and says nothing of rank 1.
    group = "PG ID 2 PG GUID 17(EXPERT_MODEL_PARALLEL_GROUP)"
    text = given_up(12, 40, group=group, own=0) + given_up(13, 40, elements=77, group=group, own=1)
    (first, *_) = findings(tmp_path, text)
    assert (first.category, first.ranks) == ("mismatched_collectives", (12, 13))
    assert "EXPERT_MODEL_PARALLEL_GROUP" in first.cause


def test_numbers_of_different_groups_are_not_compared(tmp_path: Path) -> None:
    text = "".join(
        given_up(rank, number, group=f"PG ID 1 PG GUID {guid}(mesh_tp)", own=own)
        for rank, number, guid, own in ((0, 5, 3, 0), (1, 5, 3, 1), (2, 9, 4, 0), (3, 9, 4, 1))
    )
    assert all(one.confidence == POSSIBLE for one in findings(tmp_path, text))


def test_groups_that_only_a_count_per_process_names_are_not_compared(tmp_path: Path) -> None:
    # torch 2.3 counts groups per process: `PG 1` of ranks 0 and 2 are two groups, as both are first in theirs.
    text = "".join(given_up(rank, 5 + rank, group="PG 1", own=rank % 2) for rank in range(4))
    assert all(one.confidence == POSSIBLE for one in findings(tmp_path, text))


def test_a_job_that_was_started_again_is_not_compared_with_itself(tmp_path: Path) -> None:
    # The second time with another model: its number 100 has nothing to do with the first one's.
    text = given_up(0, 100) + given_up(1, 100) + given_up(2, 100, elements=77, clock="08:30:00")
    assert all(one.confidence == POSSIBLE for one in findings(tmp_path, text))


def test_one_timeout_is_printed_twice_and_counts_once(tmp_path: Path) -> None:
    again = (
        "  what():  [PG 3 Rank 5] Process group watchdog thread terminated with exception: [Rank 5] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064, "
        "Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"  # sgl-project/sglang#1693
    )
    (first,) = findings(tmp_path, again + again)
    assert first.consequence
    assert first.ranks == ()
