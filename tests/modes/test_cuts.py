"""Cuts: a rank's box of a parameter, its padding, and the numbers it starts with."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from meshwright.modes.cuts import Cut, Cuts, cut_parameter, matches, matching, materialise, note_partial, whole_cut
from meshwright.modes.parts import Part
from meshwright.modes.passthrough import Passthrough

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("layers.3.mlp", "layers.*.mlp", True),
        ("layers.3.mlp.up", "layers.*.mlp", False),  # * is one level
        ("layers.mlp", "layers.*.mlp", False),
        ("layers.3.moe", "layers.*.m*e", True),
        ("Layers.3.mlp", "layers.*.mlp", False),
    ],
)
def test_a_star_is_one_level(name: str, pattern: str, fits: bool) -> None:
    assert matches(name, pattern) is fits


def test_what_another_stage_holds_does_not_match() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": Passthrough()})
    assert [name for name, _ in matching(model, "*")] == ["a"]


def numbered(*shape: int) -> nn.Module:
    module = nn.Module()
    module.weight = nn.Parameter(torch.arange(float(torch.Size(shape).numel())).view(shape))
    return module


def test_a_cut_keeps_a_range_and_says_where_it_lies() -> None:
    module, cuts = numbered(6, 4), Cuts()
    cut_parameter(module, "weight", "m.weight", cuts, 0, 2, 2, ways=3)
    assert torch.equal(module.weight, torch.arange(24.0).view(6, 4)[2:4])  # type: ignore[arg-type]
    assert cuts == {"m.weight": Cut((6, 4), (2, 0), (2, 4), ways=3)}


def test_a_second_cut_is_made_of_the_first() -> None:
    module, cuts = numbered(6, 4), Cuts()
    cut_parameter(module, "weight", "m.weight", cuts, 0, 2, 4, ways=2)
    cut_parameter(module, "weight", "m.weight", cuts, 1, 1, 2, ways=2)
    cut_parameter(module, "weight", "m.weight", cuts, 0, 1, 2, ways=2)
    assert torch.equal(module.weight, torch.arange(24.0).view(6, 4)[3:5, 1:3])  # type: ignore[arg-type]
    assert cuts["m.weight"] == Cut((6, 4), (3, 1), (2, 2), ways=8)


def test_padding_is_zeros_that_no_part_shows() -> None:
    module, cuts = numbered(5, 2), Cuts()
    cut_parameter(module, "weight", "w", cuts, 0, 3, 2, padded=3, ways=2)
    parameter = module.weight
    assert isinstance(parameter, nn.Parameter)
    assert parameter.tolist() == [[6, 7], [8, 9], [0, 0]]
    part = Part("w", cuts["w"].shape, cuts["w"].offset, cuts["w"].size, parameter, 1, None)  # type: ignore[arg-type]
    assert part.data.tolist() == [[6, 7], [8, 9]]
    parameter.grad = torch.ones(3, 2)
    assert part.gradient is not None
    part.gradient.zero_()
    assert parameter.grad.tolist() == [[0, 0], [0, 0], [1, 1]]  # a view: what is done to it is done to the module's
    assert not part.whole


def test_a_rank_of_padding_alone_holds_nothing() -> None:
    module, cuts = numbered(4, 2), Cuts()
    cut_parameter(module, "weight", "w", cuts, 0, 4, 0, padded=2, ways=3)
    assert torch.equal(module.weight, torch.zeros(2, 2))  # type: ignore[arg-type]
    assert cuts["w"].size == (0, 2)


def test_a_parameter_that_is_none_is_left_alone() -> None:
    cuts = Cuts()
    cut_parameter(nn.Linear(2, 2, bias=False), "bias", "bias", cuts, 0, 0, 1)
    assert cuts == {}


def test_an_axis_is_summed_over_once() -> None:
    module, cuts = numbered(4), Cuts()
    note_partial(module, "norm", cuts, "tensor")
    note_partial(module, "norm", cuts, "tensor")
    note_partial(module, "norm", cuts, "kv_copies")
    assert cuts["norm.weight"].sum_over == ("tensor", "kv_copies")
    assert cuts["norm.weight"].size == (4,)


def tied(device: str) -> nn.ModuleDict:
    model = nn.ModuleDict({"table": nn.Embedding(5, 2, device=device), "head": nn.Linear(2, 5, False, device=device)})
    model["head"].weight = model["table"].weight
    return model


def test_boxes_are_drawn_once_and_tied_ones_stay_one() -> None:
    model, cuts, drawn = tied("meta"), Cuts(), []

    def initialise(name: str, cut: Cut, tensor: torch.Tensor) -> None:
        drawn.append((name, cut, tuple(tensor.shape)))
        tensor.fill_(7.0)

    cut_parameter(model["table"], "weight", "table.weight", cuts, 0, 3, 2, padded=3)
    model["head"].weight = model["table"].weight
    materialise(model, "", cuts, CPU, initialise)
    assert drawn == [("table.weight", cuts["table.weight"], (2, 2))]  # without padding
    assert model["head"].weight is model["table"].weight
    assert model["table"].weight.tolist() == [[7, 7], [7, 7], [0, 0]]
    assert model["table"].weight.requires_grad


def test_real_numbers_stay_as_they_are() -> None:
    model = tied("cpu")
    before = model["table"].weight.detach().clone()
    materialise(model, "", {}, CPU, None)
    assert torch.equal(model["table"].weight, before)


def test_what_nobody_fills_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table\.weight has no numbers"):
        materialise(tied("meta"), "", {}, CPU, None)
    model = nn.Module()
    model.register_buffer("mask", torch.empty(2, device="meta"))
    with pytest.raises(ValueError, match="mask has no numbers"):
        materialise(model, "", {}, CPU, None)


def test_a_whole_cut_is_all() -> None:
    assert whole_cut(torch.zeros(3, 2)) == Cut((3, 2), (0, 0), (3, 2))
