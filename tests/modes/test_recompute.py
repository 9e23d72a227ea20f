"""Recomputation runs forward again and changes nothing, not a bit of a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from meshwright.modes.recipe import Recipe
from meshwright.modes.recompute import apply_recompute
from meshwright.train.models.build import build_model
from meshwright.train.models.init import init_module

TOKENS = torch.arange(24).view(2, 12)
POSITIONS = torch.arange(12).expand(2, -1)


def run(model: str, kind: str) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Gradients by parameter, and how often each kind of module computed."""
    built = build_model(model, device="cpu")
    init_module(built, 0)
    calls = {"kernel": 0, "mlp_norm": 0}
    for layer in built.layers.values():
        layer.attention.kernel = counting(layer.attention.kernel, calls)
        layer.mlp_norm.register_forward_hook(lambda *_: calls.__setitem__("mlp_norm", calls["mlp_norm"] + 1))
    apply_recompute(built, kind, built.recipe)
    built(TOKENS, POSITIONS).square().mean().backward()
    return {name: p.grad for name, p in built.named_parameters() if p.grad is not None}, calls


def counting(kernel, calls: dict[str, int]):  # type: ignore[no-untyped-def]
    def counted(*args, **named):  # type: ignore[no-untyped-def]
        calls["kernel"] += 1
        return kernel(*args, **named)

    return counted


@pytest.mark.parametrize("model", ["tiny-gpt2", "tiny-mixtral"])
def test_gradients_are_the_same_bits_and_only_what_was_asked_runs_again(model: str) -> None:
    plain, once = run(model, "none")
    assert once == {"kernel": 4, "mlp_norm": 4}
    for kind, calls in (("selective", {"kernel": 8, "mlp_norm": 4}), ("full", {"kernel": 8, "mlp_norm": 8})):
        gradients, twice = run(model, kind)
        assert twice == calls
        assert gradients.keys() == plain.keys()
        assert all(torch.equal(gradients[name], plain[name]) for name in plain)


def test_parameters_keep_their_names() -> None:
    built = build_model("tiny-llama")
    before = list(built.state_dict())
    apply_recompute(built, "full", built.recipe)
    assert list(built.state_dict()) == before


def test_a_block_that_draws_draws_the_same_again() -> None:
    """A user's own model may have dropout: backward needs the mask that forward used."""
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Dropout(0.5))
    recipe = Recipe(order=("*",), blocks="*")
    apply_recompute(model, "full", recipe)
    x = torch.ones(1, 64, requires_grad=True)
    out = model[1](x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())  # both are the mask, times 2
