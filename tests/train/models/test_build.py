"""Every small preset builds, has the parameters that cost counts, and learns with all of them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from meshwright.cost.parameters import parameters
from meshwright.train.models.build import build_model, load_architecture, preset_names
from meshwright.train.models.init import init_module


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_has_the_parameters_that_cost_counts(name: str) -> None:
    model = build_model(name)
    held = [*model.parameters(), *model.buffers()]  # the router's bias of a DeepSeek-V3 is a buffer
    assert sum(tensor.numel() for tensor in held) == parameters(load_architecture(name).model).total


def test_the_benchmark_model_has_6163712_parameters() -> None:
    assert sum(p.numel() for p in build_model("bench-6m").parameters()) == 6_163_712


@pytest.mark.parametrize("name", preset_names())
def test_a_fresh_model_guesses_evenly_and_every_parameter_gets_a_gradient(name: str) -> None:
    model = build_model(name, device="cpu")
    init_module(model, 0)
    vocab = load_architecture(name).model.vocab
    tokens = torch.randint(0, vocab, (2, 64), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(64).expand(2, -1)
    loss = functional.cross_entropy(model(tokens, positions), tokens.roll(-1, 1).flatten())
    loss.backward()
    assert loss.item() == pytest.approx(torch.tensor(float(vocab)).log().item(), rel=0.05)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", preset_names())
def test_the_recipe_names_modules_that_are_there_and_leaves_no_parameter_out(name: str) -> None:
    model = build_model(name)
    modules = {".".join("*" if part.isdigit() else part for part in n.split(".")) for n, _ in model.named_modules()}
    assert set(model.recipe.tensor) <= modules
    for parameter, _ in model.named_parameters():
        owner = ".".join("*" if part.isdigit() else part for part in parameter.split(".")[:-1])
        assert owner in model.recipe.tensor or owner == f"{model.recipe.experts}.experts"
