"""NaN: the step and the rank that had it first, and advice that fits what is known of the numbers' format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import ERROR, WARNING, Finding


def four_ranks(folder: Path, norms: bool) -> None:
    """Rank 2's loss is NaN at step 20; gradients are all-reduced, so norms are from 20 and losses from 21 on all."""
    for rank in range(4):
        lines = []
        for step in range(1, 30):
            loss = "nan" if step > 20 or (step == 20 and rank == 2) else f"{9 - step / 10:.3f}"
            lines.append(f"step: {step} loss: {loss}" + f" grad_norm: {'nan' if step >= 20 else 1.0}" * norms)
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n")


def nan_of(path: Path) -> Finding:
    found = [one for one in diagnose([path]).findings if "NaN" in one.cause]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("norms", [True, False])
def test_the_rank_whose_own_loss_is_nan_first_is_named_alone(tmp_path: Path, norms: bool) -> None:
    four_ranks(tmp_path, norms)
    found = nan_of(tmp_path)
    assert (found.category, found.severity, found.ranks) == ("fp16_overflow", ERROR, (2,))
    assert "step 20 on rank 2" in found.cause
    assert "ranks" not in found.cause
    assert [(one.rank, one.line) for one in found.evidence] == [(2, 20)]
    assert "step 20 on rank 2" in found.change[0]


def test_all_ranks_at_once_are_no_culprits(tmp_path: Path) -> None:
    for rank in range(4):
        text = "".join(f"step: {s} loss: {'nan' if s > 9 else 3 - s / 100} grad_norm: 1.0\n" for s in range(20))
        (tmp_path / f"rank{rank}.log").write_text(text)
    assert nan_of(tmp_path).ranks == ()


@pytest.mark.parametrize(
    ("setting", "half"),
    [
        ({"fp16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}, True),
        ({"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}, False),
        ({"mixed_precision": "fp16", "num_processes": 4}, True),
        ({"mixed_precision": "bf16", "num_processes": 4}, False),
        (None, False),
    ],
)
def test_bf16_is_advised_only_where_something_says_fp16(
    tmp_path: Path, setting: dict[str, object] | None, half: bool
) -> None:
    four_ranks(tmp_path, norms=True)
    if setting:
        (tmp_path / "config.json").write_text(json.dumps(setting))
    found = nan_of(tmp_path)
    assert any("bf16" in one for one in found.change) is half
    assert ("fp16 overflows" in found.cause) is half
    assert any("learning rate" in one for one in found.change)


def test_one_bad_step_that_training_survives_is_a_warning(tmp_path: Path) -> None:
    text = "".join(f"step: {s} loss: {'nan' if s == 9 else 3 - s / 100} grad_norm: 1.0\n" for s in range(40))
    (tmp_path / "a.log").write_text(text)
    found = nan_of(tmp_path)
    assert found.severity == WARNING
    assert "at step 9" in found.cause
