"""py-spy's dumps of four ranks: the one that is elsewhere while the others wait in a collective."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import POSSIBLE, Finding

WAITS = (
    "all_reduce (torch/distributed/distributed_c10d.py:2806)", "wrapper (torch/distributed/c10d_logger.py:81)",
    "clip_grad (train.py:133)", "train (train.py:120)", "<module> (train.py:212)",
)  # fmt: skip
NETWORK = ("read (ssl.py:1166)", "recv_into (ssl.py:1314)", "readinto (socket.py:706)")


def told(folder: Path, frames: tuple[str, ...]) -> list[Finding]:
    for rank in range(4):
        lines = [f"Process {900 + rank}: python -u train.py", "Python v3.11.9 (/opt/conda/bin/python3.11)", "",
                 f'Thread {900 + rank} (idle): "MainThread"']  # fmt: skip
        lines += [f"    {one}" for one in (frames if rank == 2 else WAITS)]
        (folder / f"pyspy_rank{rank}.txt").write_text("\n".join(lines) + "\n")
    return list(diagnose([folder]).findings)


@pytest.mark.parametrize(
    ("frames", "category"),
    [
        ((*NETWORK, "get_object (s3/client.py:88)", "__next__ (myproj/data.py:44)"), "dataloader_bound"),
        (("read (myproj/tokens.py:9)", "__getitem__ (myproj/corpus.py:44)"), "dataloader_bound"),
        ((*NETWORK, "_read_status (http/client.py:279)", "fetch (aiohttp/client.py:1)"), "dataloader_bound"),
        ((*NETWORK, "upload_part (boto3/s3/transfer.py:3)", "save_checkpoint (ckpt.py:9)"),
         "long_non_collective_section"),
        (("write (myproj/io.py:3)", "save (myproj/ckpt.py:9)"), "long_non_collective_section"),
        (("evaluate (myproj/metrics.py:7)",), "long_non_collective_section"),
    ],
)  # fmt: skip
def test_the_rank_that_is_elsewhere_is_named_by_what_it_does(
    tmp_path: Path, frames: tuple[str, ...], category: str
) -> None:
    found = told(tmp_path, (*frames, "train (train.py:101)", "<module> (train.py:212)"))
    assert [(one.category, one.confidence, one.ranks) for one in found] == [(category, POSSIBLE, (2,))]
    assert found[0].cause.startswith("Rank 2 ")


def test_four_ranks_in_the_same_collective_are_no_fault_to_name(tmp_path: Path) -> None:
    assert told(tmp_path, WAITS) == []
