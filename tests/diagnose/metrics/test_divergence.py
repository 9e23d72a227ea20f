"""Runs that diverge or learn nothing, with finite numbers; and healthy ones that only spike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, POSSIBLE, WARNING, Finding


def told(folder: Path, row: Callable[[int], dict[str, float]], name: str = "metrics.jsonl") -> list[Finding]:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"step": step, **row(step)}) + "\n" for step in range(60)))
    return list(diagnose([folder]).findings)


def exploding(step: int) -> dict[str, float]:
    """Fine until 40; then the norm doubles each step and the loss rises from 3.6 to 13."""
    late = max(step - 40, 0)
    return {"loss": 4 - step / 100 + late / 2, "lr": 1e-4, "grad_norm": 2.0**late}


def test_a_loss_that_rises_with_exploding_norms_is_a_warning(tmp_path: Path) -> None:
    found = told(tmp_path, exploding)
    assert [(one.category, one.severity, one.confidence) for one in found] == [("batch_lr_scaling", WARNING, POSSIBLE)]
    assert "diverges" in found[0].cause


def test_ten_steps_of_doubling_norms_are_enough(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(f"step: {s} loss: {4 + s} grad_norm: {2**s}\n" for s in range(10)))
    assert [one.severity for one in diagnose([tmp_path]).findings] == [WARNING]


def test_a_loss_that_rises_alone_is_a_remark(tmp_path: Path) -> None:
    found = told(tmp_path, lambda step: {"loss": exploding(step)["loss"]})
    assert [one.severity for one in found] == [INFO]


@pytest.mark.parametrize(
    "row",
    [
        lambda s: {"loss": 10 / (1 + s / 10), "grad_norm": 50.0 / (1 + s)},  # norms are highest at the start
        lambda s: {"loss": 3 - s / 100 + (1.0 if s % 7 == 0 else 0.0), "grad_norm": 1.0 + (s % 7 == 0)},
        lambda s: {"loss": 3 - s / 100, "lr": 1e-4 * s / 60},  # a warm-up begins at 0
        lambda s: {"loss": 0.001 * (s % 5), "grad_norm": 0.1},
        lambda s: {"loss": 0.0, "grad_norm": 0.0},  # a sample that is learned by heart
        lambda s: {"loss": -1.0 + s / 100, "grad_norm": 0.1},
        lambda s: {"loss": 3.0 if s < 10 else 12.0 - s / 6, "grad_norm": 1.0},  # a harder data set, then it falls
    ],
)
def test_healthy_runs_yield_nothing(tmp_path: Path, row: Callable[[int], dict[str, float]]) -> None:
    assert told(tmp_path, row) == []


def test_a_spike_that_recovers_is_a_remark(tmp_path: Path) -> None:
    found = told(tmp_path, lambda s: {"loss": 9.0 if s == 30 else 3 - s / 100, "grad_norm": 500.0 if s == 30 else 1.0})
    assert [one.severity for one in found] == [INFO]
    assert "step 30" in found[0].cause
    assert "500 times" in found[0].cause


def test_no_gradient_and_no_rate_learn_nothing(tmp_path: Path) -> None:
    found = told(tmp_path / "a", lambda s: {"loss": 10.82, "lr": 1e-4, "grad_norm": 0.0})
    assert [one.category for one in found] == ["ddp_unused_parameters"]
    found = told(tmp_path / "b", lambda s: {"loss": 8.0 + s % 2 / 10, "lr": 0.0, "grad_norm": 1.0})
    assert [(one.category, one.severity) for one in found] == [("lr_schedule_scaling", WARNING)]
    # A rate that is printed with two decimals is 0.00 in healthy runs: their loss falls.
    found = told(tmp_path / "c", lambda s: {"loss": 8.0 - s / 10, "lr": 0.0, "grad_norm": 1.0})
    assert [(one.category, one.severity) for one in found] == [("lr_schedule_scaling", INFO)]


def test_ranks_of_one_job_tell_it_once(tmp_path: Path) -> None:
    told(tmp_path, exploding, "rank0.log")
    assert len([one for one in told(tmp_path, exploding, "rank1.log") if "diverges" in one.cause]) == 1
