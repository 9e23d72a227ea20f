"""Step times of ranks beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, POSSIBLE, WARNING, Finding


def told(folder: Path, seconds: Mapping[int, float], steps: int = 8, waits: Mapping[int, float] | None = None) -> (
    list[Finding]
):  # fmt: skip
    for rank, time in seconds.items():
        wait = f" data_time: {waits[rank]}" if waits else ""
        lines = [f"step: {s} loss: {3 + rank / 7 - s / 100:.4f} step_time: {time}{wait}" for s in range(steps)]
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    return [one for one in diagnose([folder]).findings if one.severity != INFO]


def test_a_rank_that_is_slower_at_the_same_steps_is_named_with_its_factor(tmp_path: Path) -> None:
    found = told(tmp_path, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.9})
    assert [(one.category, one.severity, one.confidence, one.ranks) for one in found] == [
        ("straggler_gpu", WARNING, POSSIBLE, (3,))
    ]
    assert "1.90 times" in found[0].cause


def test_ranks_within_ten_per_cent_are_equal(tmp_path: Path) -> None:
    assert told(tmp_path, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.09}) == []


def test_ranks_that_collectives_make_equally_slow_say_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, {0: 1.9, 1: 1.9, 2: 1.9, 3: 1.9}) == []


def test_fewer_than_five_shared_steps_say_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, {0: 1.0, 1: 1.0, 2: 1.9}, steps=4) == []


def test_two_groups_of_equal_size_have_no_culprit(tmp_path: Path) -> None:
    # Stages of a pipeline, or two kinds of nodes: which of the halves is slow is not told.
    assert told(tmp_path, {0: 1.0, 1: 1.0, 2: 1.9, 3: 1.9}) == []


def test_the_slower_of_two_ranks_is_named(tmp_path: Path) -> None:
    assert [(one.ranks, "1.50 times" in one.cause) for one in told(tmp_path, {0: 1.0, 1: 1.5})] == [((1,), True)]


def test_a_rank_whose_excess_is_its_data_waits_for_them(tmp_path: Path) -> None:
    found = told(tmp_path, {0: 1.0, 1: 1.0, 2: 1.9}, waits={0: 0.1, 1: 0.1, 2: 0.95})
    assert [(one.category, one.ranks) for one in found if "times as long" in one.cause] == [("dataloader_bound", (2,))]


def test_one_file_of_all_ranks(tmp_path: Path) -> None:
    rows = (
        f'{{"rank": {r}, "step": {s}, "step_time": {1.9 if r == 3 else 1.0}}}\n' for s in range(6) for r in range(4)
    )
    (tmp_path / "metrics.jsonl").write_text("".join(rows))
    found = [one for one in diagnose([tmp_path]).findings if one.severity != INFO]
    assert [(one.category, one.ranks) for one in found] == [("straggler_gpu", (3,))]
