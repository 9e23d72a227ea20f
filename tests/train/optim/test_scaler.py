"""The loss scale moves as torch.amp.GradScaler's, within its bounds."""

from __future__ import annotations

import pytest
import torch

from meshwright.train.optim.config import OptimizerError
from meshwright.train.optim.scaler import LossScaler


def test_the_scale_moves_as_the_grad_scaler_of_torch_moves_it() -> None:
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3)
    ours = LossScaler(2.0**16, interval=3)
    parameter = torch.nn.Parameter(torch.zeros(2))
    sgd = torch.optim.SGD([parameter], lr=0.0)
    for good in [True, True, True, True, True, False, True, True, False, False, True, True, True, True]:
        theirs.scale(torch.zeros(()))  # makes its lazy tensors
        parameter.grad = torch.tensor([1.0, 1.0 if good else float("inf")])
        theirs.step(sgd)
        theirs.update()
        assert ours.good(parameter.grad.norm()) == good
        ours.update(good)
        assert ours.scale == theirs.get_scale()


def test_a_norm_that_is_not_finite_is_no_good_step() -> None:
    scaler = LossScaler()
    assert [scaler.good(torch.tensor(value)) for value in (1.0, float("inf"), float("nan"))] == [True, False, False]


def test_the_scale_stays_below_its_maximum_and_stops_at_its_minimum() -> None:
    scaler = LossScaler(4.0, interval=1, minimum=2.0, maximum=8.0)
    for _ in range(3):
        scaler.update(True)
    assert scaler.scale == 8.0
    scaler.update(False)
    scaler.update(False)
    assert scaler.scale == 2.0
    with pytest.raises(OptimizerError, match="bf16"):
        scaler.update(False)


def test_a_saved_scale_continues() -> None:
    first, second = LossScaler(interval=3), LossScaler(2.0**4, interval=3)
    first.update(False)
    first.update(True)
    first.update(True)
    second.load_state_dict(first.state_dict())
    for scaler in (first, second):
        scaler.update(True)
    assert second.scale == first.scale == 2.0**16


@pytest.mark.parametrize("options", [{"scale": 0.5}, {"growth": 1.0}, {"backoff": 1.0}, {"interval": 0}])
def test_numbers_that_cannot_be_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(OptimizerError):
        LossScaler(**options)
