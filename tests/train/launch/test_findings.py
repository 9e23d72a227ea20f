"""What a run that hangs leaves, and what its launcher says first."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from meshwright.train.launch.local import launch_local

SCRIPT = """
import sys, time
from datetime import timedelta
from pathlib import Path
from meshwright.train.launch.environment import read_place
from meshwright.train.launch.error_files import record_errors
from meshwright.train.launch.recorder import record_collectives
folder, place = Path(sys.argv[1]), read_place()
with record_errors(place.rank, folder):
    record_collectives(folder, place.rank)
    import torch
    import torch.distributed as dist
    from meshwright.train.launch.process_group import initialize
    initialize(place, device="cpu", timeout=60)  # ranks of a busy machine start seconds apart
    group = dist.new_group(timeout=timedelta(seconds=3))
    for _ in range(4):
        dist.all_reduce(torch.ones(8), group=group)
    {body}
"""


def launched(folder: Path, body: str) -> int:
    script = folder / "rank_script.py"
    script.write_text(SCRIPT.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip()))
    return launch_local([sys.executable, str(script), str(folder)], 2, folder)


def test_of_a_run_that_hangs_the_launcher_first_names_the_rank_that_did_not_come(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
    if place.rank == 1:
        time.sleep(60)
    dist.all_reduce(torch.ones(8), group=group)
    """
    assert launched(tmp_path, body) == 1
    first, *rest = capfd.readouterr().err.splitlines()
    assert first.startswith("Rank 0 waits for rank 1, first in all_reduce number 5")
    assert any(line.startswith("error: rank 0 of 2 failed") for line in rest)
    # The rank that hung could not be asked in its main thread, and has left its dump all the same.
    assert (tmp_path / "logs" / "recorder-0001.pickle").exists()


def test_of_a_rank_that_failed_by_itself_its_own_error_comes_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
    if place.rank == 1:
        raise ValueError("no such file")
    dist.all_reduce(torch.ones(8), group=group)
    """
    assert launched(tmp_path, body) == 1
    assert capfd.readouterr().err.startswith("error: rank 1 of 2 failed: ValueError: no such file")


def test_a_message_that_names_a_fault_is_explained(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = """
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    """
    assert launched(tmp_path, body) == 1
    assert capfd.readouterr().err.startswith("A GPU has a memory error that it cannot correct.")
