"""fp16: a scale that looks for its level is healthy, one that falls without end is not; the first step of a NaN."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import ERROR, LIKELY, POSSIBLE, Finding

DEEPSPEED = (
    "[INFO] [loss_scaler.py:181:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, "
    "reducing to {}\n"
)


def halvings(start: int, times: int) -> str:
    return "".join(DEEPSPEED.format(start >> at, start >> (at + 1)) for at in range(times))


def steps(first: int, last: int) -> str:
    return "".join(f"{{'loss': {3 - s / 1000}, 'grad_norm': 1.0, 'epoch': {s / 100}}}\n" for s in range(first, last))


def told(tmp_path: Path, text: str) -> tuple[Finding, ...]:
    (tmp_path / "train.log").write_text("INFO start\n" + text)
    return diagnose([tmp_path]).findings


@pytest.mark.parametrize("times", [1, 6])
def test_a_scale_that_finds_its_level_at_the_start_is_healthy(tmp_path: Path, times: int) -> None:
    # DeepSpeed#931: the first six steps skipped, then fine.
    assert told(tmp_path, halvings(65536, times) + steps(0, 50)) == ()


def test_single_halvings_far_apart_are_healthy(tmp_path: Path) -> None:
    text = "".join(steps(100 * at, 100 * at + 100) + halvings(2048, 1) for at in range(8))
    assert told(tmp_path, text) == ()


@pytest.mark.parametrize(("times", "found"), [(3, []), (4, [(ERROR, LIKELY)])])
def test_four_halvings_in_a_row_in_the_midst_of_a_run_are_a_fault(
    tmp_path: Path, times: int, found: list[tuple[str, str]]
) -> None:
    # ymcui/Chinese-LLaMA-Alpaca#534
    said = told(tmp_path, steps(0, 50) + halvings(64, times))
    assert [(one.severity, one.confidence) for one in said] == found
    assert all(one.category == "fp16_overflow" and one.evidence[0].line == 52 for one in said)


def test_a_scale_at_its_floor_is_possible_at_once_and_likely_when_it_stays(tmp_path: Path) -> None:
    line = "[Rank 0] Overflow detected. Skipping step. Attempted loss scale: 1, reducing to 1\n"
    assert told(tmp_path, line)[0].confidence == POSSIBLE
    assert told(tmp_path, (line + "INFO other\n") * 4)[0].confidence == LIKELY


def test_an_optimizer_that_stays_while_the_timer_runs(tmp_path: Path) -> None:
    # DeepSpeed#697
    text = "".join(
        f"[INFO] [fused_optimizer.py:314:_update_scale] Grad overflow on iteration 3\n[timer.py] 0/{at}, "
        f"SamplesPerSec=28.7\n"
        for at in range(20, 180, 10)
    )
    first = told(tmp_path, text)[0]
    assert (first.category, first.confidence) == ("fp16_overflow", LIKELY)
    assert "iteration 3" in first.cause
    assert "170" in first.cause


def test_skips_that_count_as_fast_as_steps(tmp_path: Path) -> None:
    lines = "[INFO] [Rank 0] step={}, skipped={}, lr=[1e-05], mom=[(0.9, 0.95)]\n"
    frozen = "".join(lines.format(100 + 10 * at, 3 + 10 * at) for at in range(6))
    assert told(tmp_path, frozen)[0].category == "fp16_overflow"
    assert told(tmp_path, "".join(lines.format(100 + 10 * at, 3 + at // 3) for at in range(60))) == ()


def test_the_first_step_and_rank_of_a_nan(tmp_path: Path) -> None:
    for rank in range(3):
        bad = 5 if rank == 2 else 6
        text = "".join(f"step: {s} loss: {'nan' if s >= bad else 3.5 - s / 10}\n" for s in range(1, 10))
        (tmp_path / f"rank_{rank}.log").write_text(text)
    first = diagnose([tmp_path]).findings[0]
    assert (first.category, first.severity, first.confidence, first.ranks) == ("fp16_overflow", ERROR, POSSIBLE, (2,))
    assert "step 5" in first.cause
    assert first.evidence[0].line == 5


def test_an_infinite_norm_of_one_skipped_step_is_healthy(tmp_path: Path) -> None:
    text = "".join(f"step: {s} loss: 2.5{s} grad_norm: {'inf' if s == 4 else 1.0}\n" for s in range(12))
    assert told(tmp_path, text) == ()
