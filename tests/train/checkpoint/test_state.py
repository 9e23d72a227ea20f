"""A run's state comes back from JSON exactly, or is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from meshwright.train.checkpoint import CheckpointError, TrainState
from meshwright.train.checkpoint.state import random_state, read_state, restore_random, state_json


def test_a_state_comes_back_exactly() -> None:
    state = TrainState(
        step=3,
        samples=2**60,
        tokens=7,
        seed=1,
        data={"epoch": 1, "index": [1, 2, {"a": None}]},
        schedule={"lr": 0.1 + 0.2},
        loss_scale={"scale": 65536.0, "clean": 17},
        config={"layout": "fsdp2 tp2", "nested": {"on": True}},
    )
    assert read_state(state_json(state), {}) == state


@pytest.mark.parametrize("value", [torch.tensor(1.0), math.nan, math.inf, {1: 2}, b"bytes", {1, 2}])
def test_what_json_cannot_hold_is_refused_by_name(value: Any) -> None:
    with pytest.raises(CheckpointError, match="The state's data"):
        state_json(TrainState(data={"here": value}))


def test_a_damaged_state_is_refused() -> None:
    good = json.loads(state_json(TrainState(step=1)))
    for bad in ("", "[]", "{}", json.dumps(good | {"step": "1"}), json.dumps(good | {"more": 1})):
        with pytest.raises(CheckpointError, match="state is damaged"):
            read_state(bad, {})


def test_generators_go_on_where_they_were() -> None:
    torch.manual_seed(5)
    torch.rand(7)
    state = TrainState(random=random_state())
    drawn = torch.rand(5)
    torch.manual_seed(6)
    restore_random(state)
    assert torch.equal(torch.rand(5), drawn)


def test_a_damaged_generator_is_refused() -> None:
    with pytest.raises(CheckpointError, match="random state of 'cpu' is damaged"):
        restore_random(TrainState(random={"cpu": "AAAA"}))
