"""Any box of a parameter is that box of the whole draw, and the rules are those of GPT-2."""

from __future__ import annotations

import itertools

import pytest
import torch

from meshwright.train.models import init
from meshwright.train.models.build import build_model
from meshwright.train.models.init import InitRule, init_module, init_part, init_rules

NORMAL = InitRule("normal", 0.5)


def box(shape: tuple[int, ...], offset: tuple[int, ...], size: tuple[int, ...], name: str = "w") -> torch.Tensor:
    out = torch.full(size, float("nan"))
    init_part(name, shape, offset, size, out, 7, NORMAL)
    return out


@pytest.mark.parametrize("shape", [(13,), (11, 7), (3, 5, 4)])
def test_every_box_is_a_slice_of_the_whole_draw(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "BLOCK", 16)  # several blocks a matrix
    whole = box(shape, (0,) * len(shape), shape)
    for dim in range(len(shape)):
        for first, last in itertools.combinations(range(shape[dim] + 1), 2):
            offset = tuple(first if d == dim else 0 for d in range(len(shape)))
            size = tuple(last - first if d == dim else n for d, n in enumerate(shape))
            torch.testing.assert_close(box(shape, offset, size), whole.narrow(dim, first, last - first), rtol=0, atol=0)


def test_a_box_in_two_dimensions_of_a_large_matrix_is_a_slice() -> None:
    whole = box((3000, 300), (0, 0), (3000, 300))
    part = box((3000, 300), (870, 100), (20, 150))
    assert torch.equal(part, whole[870:890, 100:250])


def test_draws_are_normal_and_differ_between_names_blocks_and_matrices() -> None:
    whole = box((4, 700, 400), (0, 0, 0), (4, 700, 400))
    assert whole.mean().abs() < 0.003
    assert (whole.std() - 0.5).abs() < 0.003
    assert whole.unique().numel() > 0.99 * 700 * 400
    assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(box((8, 8), (0, 0), (8, 8), "a"), box((8, 8), (0, 0), (8, 8), "b"))


def test_a_float64_and_a_bfloat16_model_start_from_the_same_float32_numbers() -> None:
    single = box((9, 9), (0, 0), (9, 9))
    for dtype in (torch.float64, torch.bfloat16):
        out = torch.empty(9, 9, dtype=dtype)
        init_part("w", (9, 9), (0, 0), (9, 9), out, 7, NORMAL)
        assert torch.equal(out, single.to(dtype))


def test_norms_start_at_one_biases_at_zero_and_residual_projections_smaller() -> None:
    model = build_model("tiny-gpt2", device="cpu")
    rule = init_rules(model)
    assert rule("layers.0.attention_norm.weight") == rule("norm.weight") == InitRule("ones")
    assert rule("layers.0.attention_norm.bias") == rule("layers.1.mlp.down.bias") == InitRule("zeros")
    assert rule("embed.positions.weight") == rule("layers.0.mlp.up.weight") == InitRule("normal", 0.02)
    small = InitRule("normal", 0.02 / 8**0.5)
    assert rule("layers.0.attention.o.weight") == rule("layers.3.mlp.down.weight") == small
    assert rule("layers.0.moe.experts.down") == small
    assert rule("layers.0.moe.experts.up") == rule("layers.0.moe.router.weight") == InitRule("normal", 0.02)
    assert rule("layers.0.attention.q_norm.weight") == InitRule("ones")
    init_module(model, 1)
    assert model.layers["2"].mlp.down.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.02)
