"""Schedules equal those of transformers and torch, but that no update of the warm-up has a rate of zero."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import transformers
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from meshwright.train.optim.config import OptimizerError
from meshwright.train.optim.schedule import ScheduleConfig, lr_at, scale_lr

WARMUP, TOTAL, PEAK = 5, 40, 0.3


def rates(make: Callable[[torch.optim.Optimizer], LRScheduler], steps: int) -> list[float]:
    """The rates that a scheduler gives the first updates."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    schedule = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


THEIRS = {
    ScheduleConfig("constant", WARMUP): lambda o: transformers.get_constant_schedule_with_warmup(o, WARMUP),
    ScheduleConfig("linear", WARMUP): lambda o: transformers.get_linear_schedule_with_warmup(o, WARMUP, TOTAL),
    ScheduleConfig("cosine", WARMUP): lambda o: transformers.get_cosine_schedule_with_warmup(o, WARMUP, TOTAL),
    ScheduleConfig("cosine", WARMUP, min_ratio=0.1): lambda o: transformers.get_cosine_with_min_lr_schedule_with_warmup(
        o, WARMUP, TOTAL, min_lr_rate=0.1
    ),
    ScheduleConfig("inverse_sqrt", WARMUP): lambda o: transformers.get_inverse_sqrt_schedule(o, WARMUP),
    **{
        ScheduleConfig("wsd", WARMUP, 0.1, decay_steps=12, decay=ours): lambda o, theirs=theirs: (
            transformers.get_wsd_schedule(o, WARMUP, 12, num_training_steps=TOTAL, decay_type=theirs, min_lr_ratio=0.1)
        )
        for ours, theirs in (("linear", "linear"), ("cosine", "cosine"), ("sqrt", "1-sqrt"))
    },
}


@pytest.mark.parametrize("config", THEIRS, ids=lambda config: f"{config.name}-{config.decay}-{config.min_ratio}")
def test_after_the_warm_up_the_rates_are_those_of_transformers(config: ScheduleConfig) -> None:
    ours = [lr_at(step, PEAK, config, TOTAL) for step in range(WARMUP, TOTAL)]
    assert ours == pytest.approx(rates(THEIRS[config], TOTAL)[WARMUP:], rel=1e-12, abs=1e-15)


def test_cosine_without_warm_up_is_that_of_torch() -> None:
    ours = [lr_at(step, PEAK, ScheduleConfig("cosine", min_ratio=0.2), TOTAL) for step in range(TOTAL)]
    theirs = rates(lambda optimizer: CosineAnnealingLR(optimizer, TOTAL, eta_min=0.2 * PEAK), TOTAL)
    assert ours == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("config", THEIRS, ids=lambda config: f"{config.name}-{config.decay}-{config.min_ratio}")
def test_the_warm_up_rises_by_equal_steps_to_the_peak(config: ScheduleConfig) -> None:
    ours = [lr_at(step, PEAK, config, TOTAL) for step in range(WARMUP + 1)]
    assert ours == pytest.approx([PEAK / 5, PEAK * 2 / 5, PEAK * 3 / 5, PEAK * 4 / 5, PEAK, PEAK], rel=1e-12)


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_after_the_last_step_the_rate_stays_at_its_least(name: str) -> None:
    config = ScheduleConfig(name, WARMUP, 0.1)
    assert [lr_at(step, PEAK, config, TOTAL) for step in (TOTAL, TOTAL + 7, 3 * TOTAL)] == pytest.approx([0.03] * 3)


def test_wsd_decays_in_the_last_tenth_unless_told() -> None:
    ours = [lr_at(step, PEAK, ScheduleConfig("wsd"), 100) for step in (0, 90, 95, 100, 200)]
    assert ours == pytest.approx([PEAK, PEAK, PEAK / 2, 0.0, 0.0])


def test_the_batch_scales_the_rate_linearly_or_by_its_root() -> None:
    assert scale_lr(0.1, 8192, 256, "linear") == pytest.approx(3.2)  # arXiv:1706.02677 section 5.1
    assert scale_lr(0.1, 1024, 128, "sqrt") == pytest.approx(0.1 * math.sqrt(8))
    assert scale_lr(0.1, 1024, 128, "none") == 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"name": "step"},
        {"name": "wsd", "decay": "exponential"},
        {"name": "cosine", "decay_steps": 5},
        {"name": "inverse_sqrt"},
        {"warmup_steps": -1},
        {"min_ratio": 1.5},
    ],
)
def test_schedules_that_do_not_exist_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptimizerError):
        ScheduleConfig(**options)


def test_a_warm_up_that_runs_into_the_decay_is_refused() -> None:
    with pytest.raises(OptimizerError, match="8 steps of warm-up and 5 of decay do not fit in 12 steps"):
        lr_at(0, PEAK, ScheduleConfig("wsd", 8, decay_steps=5), 12)


@pytest.mark.parametrize(("batch", "rule"), [(0, "linear"), (8, "cubic")])
def test_scaling_that_cannot_be_is_refused(batch: int, rule: str) -> None:
    with pytest.raises(OptimizerError):
        scale_lr(0.1, batch, 8, rule)
