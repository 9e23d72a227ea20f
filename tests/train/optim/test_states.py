"""Optimizer states are boxes like parameters: saved under one layout, they continue under another."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from meshwright.modes.parts import Part
from meshwright.train.optim.config import OptimConfig, OptimizerError
from meshwright.train.optim.optimizer import make_optimizer
from tests.train.optim.cuts import SHAPES, cut_of, error, initial, make_parts, train
from tests.train.optim.references import CONFIGS, reference

Saved = list[tuple[str, tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]], Tensor]]


def save(cut: str, config: OptimConfig) -> Saved:
    """This rank's parameters and states after three steps: key, whole shape, box, numbers."""
    parts = make_parts(cut, initial())
    optimizer = make_optimizer(parts, config)
    train(optimizer, parts, range(3))
    saved = [(part.name, part.shape, (part.offset, part.size), part.data.clone()) for part in parts]
    return saved + [(s.key, s.shape, (s.offset, s.size), s.tensor.clone()) for s in optimizer.state_parts()]


def resume(cut: str, config: OptimConfig, whole: dict[str, Tensor]) -> list:
    """Two more steps from whole parameters and states; this rank's parameters."""
    parts = make_parts(cut, {name: whole[name] for name in SHAPES})
    optimizer = make_optimizer(parts, config)
    optimizer.load_state({s.key: cut_of(whole[s.key], (s.offset, s.size)) for s in optimizer.state_parts()})
    train(optimizer, parts, range(3, 5))
    return [(part.name, (part.offset, part.size), part.data.clone()) for part in parts]


def assemble(saved: Saved) -> dict[str, Tensor]:
    """Whole tensors from all ranks' boxes; where boxes overlap they must agree."""
    whole: dict[str, Tensor] = {}
    for key, shape, (offset, size), value in saved:
        tensor = whole.setdefault(key, torch.full(shape, float("nan"), dtype=value.dtype))
        place = tuple(slice(start, start + length) for start, length in zip(offset, size, strict=True))
        known = tensor[place][~tensor[place].isnan()]
        assert torch.allclose(known, value[~tensor[place].isnan()], rtol=1e-13, atol=0), key
        tensor[place] = value
    assert not [key for key, tensor in whole.items() if tensor.isnan().any()]
    return whole


@pytest.mark.parametrize("name", list(CONFIGS))
def test_states_saved_under_one_cut_continue_under_another(ranks, name: str) -> None:
    saved = [item for of_rank in ranks.run(save, "mixed", CONFIGS[name], world=4) for item in of_rank]
    held = ranks.run(resume, "grid", CONFIGS[name], assemble(saved), world=2)
    assert error([box for of_rank in held for box in of_rank], reference(name)) <= 1e-12


@pytest.mark.parametrize(
    ("name", "weight", "vector"),
    [
        ("adamw", {"exp_avg": (8, 4), "exp_avg_sq": (8, 4), "step": ()}, {"exp_avg", "exp_avg_sq", "step"}),
        ("sgd", {"momentum_buffer": (8, 4)}, {"momentum_buffer"}),
        ("adafactor", {"row_var": (8, 1), "col_var": (1, 4), "step": ()}, {"variance", "step"}),
        ("lamb", {"exp_avg": (8, 4), "exp_avg_sq": (8, 4), "step": ()}, {"exp_avg", "exp_avg_sq", "step"}),
        ("muon", {"momentum_buffer": (8, 4), "step": ()}, {"exp_avg", "exp_avg_sq", "step"}),
    ],
)
def test_each_optimizer_keeps_its_states_and_no_more(name: str, weight: dict[str, tuple], vector: set[str]) -> None:
    optimizer = make_optimizer(make_parts("whole", initial()), CONFIGS[name])
    states = optimizer.state_parts()
    assert {s.state: s.shape for s in states if s.part.name.endswith("mlp.up.weight")} == weight
    assert {s.state for s in states if s.part.name.endswith("bias")} == vector
    assert all(tuple(s.tensor.shape) == s.size for s in states)


def test_states_are_live_and_made_once() -> None:
    parts = make_parts("whole", initial())
    optimizer = make_optimizer(parts, CONFIGS["adamw"])
    before = {s.key: s.tensor for s in optimizer.state_parts()}
    train(optimizer, parts, range(2))
    assert all(s.tensor is before[s.key] for s in optimizer.state_parts())
    assert {float(s.tensor) for s in optimizer.state_parts() if s.state == "step"} == {2.0}


def test_a_missing_or_misshapen_state_is_refused_before_anything_changes() -> None:
    optimizer = make_optimizer(make_parts("whole", initial()), CONFIGS["adamw"])
    values = {s.key: torch.ones_like(s.tensor) for s in optimizer.state_parts()}
    with pytest.raises(OptimizerError, match=r"head.weight.exp_avg_sq"):
        optimizer.load_state({key: value for key, value in values.items() if key != "head.weight.exp_avg_sq"})
    with pytest.raises(OptimizerError, match=r"shape \(2, 6\); this layout needs \(1, 6\)"):
        optimizer.load_state({**values, "head.weight.exp_avg_sq": torch.ones(2, 6)})
    assert all(not s.tensor.any() for s in optimizer.state_parts())


def low_precision(name: str) -> tuple[list[Part], nn.Parameter]:
    """One bfloat16 matrix of ones."""
    parameter = nn.Parameter(torch.ones(4, 4, dtype=torch.bfloat16))
    return [Part(name, (4, 4), (0, 0), (4, 4), parameter, 1, None)], parameter


@pytest.mark.parametrize("name", ["adamw", "sgd", "lamb", "adafactor", "muon"])
def test_a_master_copy_keeps_updates_that_16_bit_would_lose(name: str) -> None:
    ends = {}
    for master in (None, torch.float32):
        parts, parameter = low_precision("w.weight")
        optimizer = make_optimizer(parts, OptimConfig(name, lr=5e-4, weight_decay=0.0), master=master)
        for _ in range(20):
            parameter.grad = torch.eye(4, dtype=torch.bfloat16)
            optimizer.step()
        states = {s.state: s.tensor for s in optimizer.state_parts()}
        ends[master] = float(parameter.detach()[0, 0])
        if master:
            assert states["master"].dtype == torch.float32
            assert torch.equal(states["master"].bfloat16(), parameter.detach())
    # A step of 5e-4 is an eighth of a unit in the last place below 1.
    assert ends[None] == 1.0
    assert ends[torch.float32] < 1.0


def test_a_master_copy_that_is_loaded_reaches_the_parameter() -> None:
    parts, parameter = low_precision("w.weight")
    optimizer = make_optimizer(parts, CONFIGS["adamw"], master=torch.float32)
    values = {s.key: s.tensor.clone() for s in optimizer.state_parts()}
    values["w.weight.master"].fill_(3.0)
    optimizer.load_state(values)
    assert parameter.tolist() == [[3.0] * 4] * 4


def test_large_master_copies_are_updated_some_at_a_time_and_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.train.optim.native._BUCKET", 20)
    whole = {name: tensor.float() for name, tensor in initial().items()}
    parts = make_parts("whole", whole)
    optimizer = make_optimizer(parts, CONFIGS["adamw"], master=torch.float64)
    train(optimizer, parts, dtype=torch.float32)
    assert error([(p.name, (p.offset, p.size), p.data.double()) for p in parts], reference("adamw")) < 1e-6
    assert {float(s.tensor) for s in optimizer.state_parts() if s.state == "step"} == {5.0}
