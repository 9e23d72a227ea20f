"""What a timeout says when no numbers prove who left the common order."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import LIKELY, POSSIBLE, Finding


def timeout(rank: int, body: str, limit: int, ran: int) -> str:
    """As torch 1.12 to 2.2 print it: there is no rank of the job."""
    return (
        f"[E ProcessGroupNCCL.cpp:485] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL({body}, "
        f"Timeout(ms)={limit}) ran for {ran} milliseconds before timing out.\n"
    )


def findings(folder: Path, text: str) -> tuple[Finding, ...]:
    (folder / "job.log").write_text(text)
    return diagnose([folder]).findings


def test_a_progress_bar_as_long_as_the_timeout_is_a_long_section(tmp_path: Path) -> None:
    bar = " 35%|███       | 73811210851/208140108456 [30:01<57:14, 39115047.81MB/s]\n"  # huggingface/accelerate#314
    (first, *_) = findings(tmp_path, bar + timeout(6, "OpType=ALLREDUCE", 1800000, 1802246))
    assert (first.category, first.confidence) == ("long_non_collective_section", LIKELY)
    assert "1,801 s" in first.cause


def test_a_bar_of_training_steps_is_no_long_section(tmp_path: Path) -> None:
    bar = "Epoch 0:   6%|██  | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6]\n"
    found = findings(tmp_path, bar + timeout(6, "SeqNum=3, OpType=ALLREDUCE", 1800000, 1802246))
    assert {one.category for one in found} == {"uneven_inputs"}
    assert all(one.consequence and one.confidence == POSSIBLE for one in found)


def test_a_barrier_of_one_rank_after_the_end_of_training_is_a_branch(tmp_path: Path) -> None:
    # The lines of a Lightning job whose rank 0 alone saved (autocast#386).
    text = "`Trainer.fit` stopped: `max_epochs=30` reached.\n" + timeout(
        0, "SeqNum=4242, OpType=ALLREDUCE, NumelIn=1, NumelOut=1", 1800000, 1800090
    )
    (first, *_) = findings(tmp_path, text)
    assert (first.category, first.confidence, first.ranks) == ("rank_conditional_collective", LIKELY, (0,))


def test_a_collective_found_hours_late_means_that_the_watchdog_was_blocked(tmp_path: Path) -> None:
    found = findings(tmp_path, timeout(0, "SeqNum=96120, OpType=ALLREDUCE", 1800000, 25624887))  # pytorch#118369
    (blocked,) = [one for one in found if one.category == "watchdog_heartbeat"]
    assert blocked.confidence == POSSIBLE
    assert "25,625 s" in blocked.cause


def test_a_stuck_watchdog_names_its_group_and_time(tmp_path: Path) -> None:
    text = (  # modelscope/ms-swift#7992
        "[rank4]:[E205 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99(EXPERT_MODEL_PARALLEL_GROUP) "
        "Rank 4] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
        "collectives.\n"
    )
    found = [one for one in findings(tmp_path, text) if "EXPERT_MODEL_PARALLEL_GROUP" in one.cause]
    assert [(one.category, one.confidence, one.ranks) for one in found] == [("watchdog_heartbeat", POSSIBLE, (4,))]


def test_ranks_that_are_silent_are_suspects_when_the_world_is_known(tmp_path: Path) -> None:
    body = "SeqNum=77, OpType=ALLREDUCE, NumelIn=5000000, NumelOut=5000000"
    text = "world_size: 8\n" + "".join(timeout(rank, body, 600000, 600010) for rank in range(8) if rank != 5)
    (first, *_) = findings(tmp_path, text)
    assert (first.category, first.confidence, first.ranks) == ("uneven_inputs", POSSIBLE, (5,))


def test_all_groups_at_once_with_equal_numbers_are_no_desync(tmp_path: Path) -> None:
    # Ranks 0 to 3 as 2 × 2: two groups of data-parallel ranks at number 400, two of tensor-parallel ranks at 31.
    text = "world_size=4\n"
    for rank in range(4):
        for name, number, own in (("dp", 400, rank // 2), ("tp", 31, rank % 2)):
            guid = f"{name}{rank % 2 if name == 'dp' else rank // 2}"
            text += (
                f"[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:632] [Rank {own}] Watchdog caught collective "
                f"operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, "
                f"Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
                f"[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:2271] [PG ID 1 PG GUID {guid}({name}) Rank {own}] "
                f"failure detected by watchdog at work sequence id: {number} PG status: last enqueued work: {number}, "
                f"last completed work: {number - 1}\n"
            )
    (first, *_) = findings(tmp_path, text)
    assert (first.category, first.confidence, first.ranks) == ("concurrent_communicators", POSSIBLE, ())


@pytest.mark.parametrize("number", ["9" * 400, "-5", "NaN", ""])
def test_hostile_numbers_are_no_crash(tmp_path: Path, number: str) -> None:
    body = f"SeqNum={number}, OpType=ALLREDUCE, NumelIn={number}"
    text = timeout(0, body, 600000, 600010) + (
        f"[PG 0 Rank 0] Timeout at NCCL work: {number}, last enqueued NCCL work: {number}, last completed work: 1.\n"
        f"[Rank 0]: Ranks {number} failed to pass monitoredBarrier in {number} ms\n"
        f"Detected mismatch between collectives on ranks. Rank {number} is running collective: but Rank 1 is\n"
    )
    assert diagnose([_written(tmp_path, text)]).inputs


def _written(folder: Path, text: str) -> Path:
    path = folder / "hostile.log"
    path.write_text(f"2026-01-01 00:00:00 INFO\n{text}")
    return path


def test_a_closed_connection_is_a_consequence_and_the_stores_is_nothing(tmp_path: Path) -> None:
    gloo = "[rank1]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:4808.\n"
    (found,) = findings(tmp_path, gloo)
    assert (found.consequence, found.confidence) == (True, POSSIBLE)
    store = "[rank1]:[W socket.cpp:460] recvValue failed on SocketImpl(fd=5): Connection reset by peer INFO\n"
    assert findings(tmp_path, store) == ()
