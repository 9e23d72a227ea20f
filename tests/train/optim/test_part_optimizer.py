"""What a training loop asks of an optimizer: gradients dropped, rates moved, FSDP2's parameters updated in place."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import fully_shard

from meshwright.modes.parts import Part
from meshwright.train.optim.config import OptimConfig, OptimizerError
from meshwright.train.optim.leaf import make_leaf
from meshwright.train.optim.norm import clip, global_norm
from meshwright.train.optim.optimizer import PartOptimizer, make_optimizer
from tests.train.optim.cuts import gradients, initial, make_parts, set_gradients
from tests.train.optim.references import CONFIGS


def net() -> nn.Sequential:
    """Rows that two ranks cannot share evenly, and a bias of one element."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def fsdp_parts(model: nn.Module) -> list[Part]:
    """Parts of an FSDP2 model on two ranks: rows in halves, the first the larger."""
    parts = []
    for name, parameter in model.named_parameters():
        rows = parameter.size(0)
        half = (rows + 1) // 2
        start, stop = (0, half) if dist.get_rank() == 0 else (half, rows)
        rest = tuple(parameter.shape[1:])
        offset = (start, *(0 for _ in rest))
        parts.append(Part(name, tuple(parameter.shape), offset, (stop - start, *rest), parameter, 1, dist.group.WORLD))
    return parts


def train_fsdp(config: OptimConfig) -> list[tuple[str, Tensor]]:
    """Three steps under FSDP2 on two ranks; whole parameters."""
    model = net()
    fully_shard(model)
    parts = fsdp_parts(model)
    optimizer = make_optimizer(parts, config)
    x = torch.linspace(-1, 1, 30, dtype=torch.float64).view(5, 6)
    for _ in range(3):
        model(x).square().sum().backward()
        clip(parts, global_norm(parts), 1.0)
        held = [part.parameter.grad for part in parts]
        optimizer.step()
        assert [part.parameter.grad for part in parts] == held
        optimizer.zero_grad()
        assert all(part.parameter.grad is None for part in parts)
    return [(name, parameter.full_tensor().detach()) for name, parameter in model.named_parameters()]


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
def test_fsdp_parameters_end_where_one_process_ends(ranks, name: str) -> None:
    config = CONFIGS[name]
    model = net()
    shapes = {n: tuple(p.shape) for n, p in model.named_parameters()}
    parts = [Part(n, shapes[n], (0,) * p.dim(), shapes[n], p, 1, None) for n, p in model.named_parameters()]
    optimizer = make_optimizer(parts, config)
    x = torch.linspace(-1, 1, 30, dtype=torch.float64).view(5, 6)
    for _ in range(3):
        model.zero_grad()
        model(x).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    for of_rank in ranks.run(train_fsdp, config, world=2):
        for parameter, value in of_rank:
            torch.testing.assert_close(value, model.get_parameter(parameter).detach(), rtol=0, atol=1e-12)


def storage_is_shared() -> bool:
    """Whether an FSDP2 shard and the optimizer's tensor are one memory."""
    model = net()
    fully_shard(model)
    leaves = [make_leaf(part) for part in fsdp_parts(model)]
    local = [leaf.part.parameter.to_local() for leaf in leaves]
    return all(leaf.tensor.data_ptr() == shard.data_ptr() for leaf, shard in zip(leaves, local, strict=True))


def test_fsdp_shards_are_not_copied(ranks) -> None:
    assert ranks.run(storage_is_shared, world=2) == [True, True]


def whole(config: OptimConfig = CONFIGS["adamw"]) -> tuple[PartOptimizer, list[Part]]:
    """An optimizer in one process, with gradients."""
    parts = make_parts("whole", initial())
    set_gradients(parts, gradients(0))
    return make_optimizer(parts, config), parts


def test_kept_gradients_become_zero_where_they_are() -> None:
    optimizer, parts = whole()
    before = [part.parameter.grad for part in parts]
    optimizer.zero_grad(keep=True)
    assert [part.parameter.grad for part in parts] == before
    assert not any(gradient.any() for gradient in before)


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_part_without_gradient_and_a_frozen_part_stay(name: str) -> None:
    parts = make_parts("whole", initial())
    parts[1].parameter.requires_grad_(False)
    optimizer = make_optimizer(parts, CONFIGS[name])
    set_gradients(parts, gradients(0))
    parts[2].parameter.grad = None
    optimizer.step()
    moved = [part.name for part, start in zip(parts, initial().values(), strict=True) if not part.data.equal(start)]
    assert moved == [part.name for index, part in enumerate(parts) if index not in (1, 2)]
    assert not [s for s in optimizer.state_parts() if s.part is parts[1]]


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_rate_of_zero_moves_nothing(name: str) -> None:
    optimizer, parts = whole(CONFIGS[name])
    optimizer.set_lr(0.0)
    optimizer.step()
    assert all(part.data.equal(start) for part, start in zip(parts, initial().values(), strict=True))


def test_decay_reaches_norms_and_biases_only_when_asked() -> None:
    for decay_all in (False, True):
        parts = make_parts("whole", initial())
        optimizer = make_optimizer(parts, OptimConfig("adamw", lr=0.1, weight_decay=0.5, decay_all=decay_all))
        for part in parts:
            part.parameter.grad = torch.zeros_like(part.data)
        optimizer.step()
        shrunk = {p.name for p, start in zip(parts, initial().values(), strict=True) if not p.data.equal(start)}
        spared = {"layers.0.attention.q.bias", "layers.0.attention_norm.weight"}
        assert shrunk == set(initial()) - (set() if decay_all else spared)


def test_a_parameter_that_moved_in_memory_is_followed() -> None:
    optimizer, parts = whole()
    parts[0].parameter.data = parts[0].parameter.data.clone()
    optimizer.step()
    assert not parts[0].data.equal(initial()[parts[0].name])


@pytest.mark.parametrize("name", ["adamw", "lamb", "adafactor", "muon"])
def test_no_step_norm_or_clip_waits_for_a_number(name: str) -> None:
    # A tensor without numbers refuses to be read.
    with FakeTensorMode():
        parameter = nn.Parameter(torch.ones(4, 6))
        parameter.grad = torch.ones(4, 6)
        parts = [Part("w.weight", (4, 6), (0, 0), (4, 6), parameter, 1, None)]
        optimizer = make_optimizer(parts, OptimConfig(name))
        clip(parts, global_norm(parts), 1.0)
        optimizer.step()
        optimizer.step()


def test_padding_rows_of_an_uneven_vocabulary_stay() -> None:
    parameter = nn.Parameter(torch.ones(5, 2, dtype=torch.float64))
    parameter.grad = torch.ones_like(parameter)
    optimizer = make_optimizer([Part("embed.tokens.weight", (3, 2), (0, 0), (3, 2), parameter, 1, None)], OptimConfig())
    optimizer.step()
    assert parameter[:3].lt(1).all()
    assert parameter[3:].eq(1).all()


def test_the_gradient_of_a_transposed_box_is_read_by_its_strides() -> None:
    gradient = torch.arange(12.0, dtype=torch.float64).view(3, 4).t()  # [4, 3], columns first
    ends = []
    for value in (gradient, gradient.contiguous()):
        parameter = nn.Parameter(torch.zeros(4, 3, dtype=torch.float64))
        parameter.grad = value
        make_optimizer([Part("w", (4, 3), (0, 0), (4, 3), parameter, 1, None)], OptimConfig("sgd", lr=1.0)).step()
        ends.append(parameter.detach())
    assert ends[0].equal(ends[1])
    assert ends[0].equal(-gradient)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "adam8bit"}, "adamw, sgd, adafactor, lamb, muon"),
        ({"name": "sgd", "betas": (0.9, 0.99)}, "sgd has no 'betas'"),
        ({"name": "adamw", "momentum": 0.9}, "adamw has no 'momentum'"),
        ({"lr": -1.0}, "lr is -1.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\] is 1.0"),
        ({"name": "sgd", "nesterov": True, "momentum": 0.0}, "nesterov"),
        ({"name": "muon", "adjustment": "spectral"}, "match_rms_adamw, original"),
        ({"name": "muon", "newton_schulz_steps": 0}, "newton_schulz_steps"),
        ({"name": "adafactor", "clip_threshold": 0.5}, "clip_threshold"),
        ({"name": "lamb", "trust_range": (2.0, 1.0)}, "trust_range"),
    ],
)
def test_an_optimizer_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptimizerError, match=message):
        OptimConfig(**options)
