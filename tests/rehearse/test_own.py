"""A model and a step of one's own, rehearsed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from meshwright.modes.parallelize import Parallel
from meshwright.modes.recipe import Recipe
from meshwright.rehearse.own import rehearse
from meshwright.spec.errors import LayoutError
from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.optimizer import make_optimizer

WIDTH, ROWS = 64, 32


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def step(parallel: Parallel) -> Callable[[], None]:
    optimizer = make_optimizer(parallel.parts, OptimConfig(name="sgd", momentum=0.9))

    def once() -> None:
        parallel.runners[0](torch.zeros(ROWS, WIDTH)).sum().backward()
        optimizer.step()

    return once


def test_two_linear_layers_under_ddp_need_and_send_what_a_hand_calculation_says() -> None:
    found = rehearse(Two, step, "ddp4", "4xcpu", recipe=Recipe(order=("layers.*",), draws=False), rank=3)
    matrix = 4 * WIDTH * WIDTH
    assert found.states == {"parameters": 2 * matrix, "gradients": 2 * matrix}
    assert found.parts["optimizer"] == 2 * matrix  # the momentum
    # Forward: a product a layer; backward: two in the second layer, and in the first no gradient of its input.
    assert sum(kinds["matmul"] for kinds in found.flops.values()) == 5 * 2 * ROWS * WIDTH * WIDTH
    summed = {row.collective: row.bytes for row in found.traffic if row.axis == "data"}
    assert summed["all-reduce"] == 2 * 3 / 4 * 2 * matrix
    # The input and both relus' outputs wait for backward; none is made inside of a layer.
    assert found.kept == {"": 3 * 4 * ROWS * WIDTH}


@pytest.mark.parametrize(
    ("layout", "rank", "said"),
    [
        ("ddp4", 4, "no rank 4"),
        ("ddp8", 0, "needs 8 devices, 4xcpu has 4"),
        ("zero2:4 offload:optimizer", 0, "Legal: fsdp4 offload:optimizer\\+parameters"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(layout: str, rank: int, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        rehearse(Two, step, layout, "4xcpu", rank=rank)
