"""What the prefixes of a log's line say."""

from __future__ import annotations

from calendar import timegm

import pytest

from meshwright.diagnose.logs.line import line_of, rank_in_path


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[rank12]:[E1103 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog", 12),  # the job's, not the group's
        ("[default3]:step 7", 3),
        ("[trainer5|5]: loss", 5),
        ("[1,3]<stdout>: step", 3),
        ("[1,3]<stderr>:step", 3),
        ("17: step 4", 17),
        ("\x1b[32m[rank2]:\x1b[0m hello", 2),
        ("step 3: loss 2.0", None),
        ("10:00:00 INFO step", None),
    ],
)
def test_launchers_say_the_rank_in_a_prefix(text: str, rank: int | None) -> None:
    assert line_of("job.log", 1, text, None, 2025).rank == rank


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("run/logs/rank-0003.log", 3),
        ("torchelastic_ab12/attempt_0/5/stderr.log", 5),
        ("out/worker_7.txt", 7),
        ("dump/node3/rank_11", 11),
        ("slurm-123456.out", None),
    ],
)
def test_files_of_one_rank_say_it_in_their_name(path: str, rank: int | None) -> None:
    assert rank_in_path(path) == rank
    assert line_of(path, 1, "no prefix", rank_in_path(path), 2025).rank == rank


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-08-21 21:45:16,254 - root", timegm((2025, 8, 21, 21, 45, 16, 0, 0, 0)) + 0.254),
        ("[2024-01-02T03:04:05] x", timegm((2024, 1, 2, 3, 4, 5, 0, 0, 0))),
        ("[rank1]:[E1224 18:11:06.375750231 x.cpp:1]", timegm((2025, 12, 24, 18, 11, 6, 0, 0, 0)) + 0.375750231),
        ("2025-99-99 21:45:16 x", None),
        ("no time", None),
    ],
)
def test_a_line_may_say_when_it_was_written(text: str, moment: float | None) -> None:
    assert line_of("x", 1, text, None, 2025).when == pytest.approx(moment)
