"""What is missing is said as exactly as it is known."""

from __future__ import annotations

import math

import pytest

from meshwright.check.case import Case
from meshwright.check.explain import explain
from meshwright.check.merge import Comparison
from meshwright.spec.notation import parse_layout

SHAPES = {
    "embed.tokens.weight": (8, 2),
    **{f"layers.{i}.mlp.{key}.weight": (4, 2) for i in range(3) for key in ("up", "down")},
    "norm.weight": (2,),
}


def told(**missing: int) -> str:
    """What is said when so many numbers of these parameters (dots as __) are on no rank."""
    covered = {name: math.prod(shape) for name, shape in SHAPES.items()}
    for name, count in missing.items():
        covered[name.replace("__", ".")] -= count
    nothing = dict.fromkeys(SHAPES, (0.0,))
    ratios = dict.fromkeys(SHAPES, (1.0,))
    found = Comparison((4.0,), (0.0,), (0.0,), (1.0,), nothing, ratios, nothing, ratios, covered, (), (), ())
    known = {"shapes": SHAPES, "loss": [4.0], "grad_norm": [1.0], "sums": [], "counts": []}
    return explain(Case(), [(parse_layout("pp2:1f1b"), found)], known, 1e-9)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ({}, ""),
        (
            {f"layers__1__mlp__{key}__weight": 8 for key in ("up", "down")},
            "16 parameters are on no rank: layer 1 dropped",
        ),
        ({"layers__1__mlp__up__weight": 8}, "8 parameters are on no rank: layers.*.mlp.up.weight dropped"),
        ({"norm__weight": 2}, "2 parameters are on no rank: norm.weight dropped"),
        ({"embed__tokens__weight": 3}, "3 parameters are on no rank: parts of embed.tokens.weight"),
        (
            {**{f"layers__{i}__mlp__{key}__weight": 8 for i in (0, 2) for key in ("up", "down")}, "norm__weight": 1},
            "33 parameters are on no rank: layers 0, 2 dropped and parts of norm.weight",
        ),
        ({"norm__weight": -2}, "the ranks' parts of norm.weight overlap"),
    ],
)
def test_missing_parameters_are_named(missing: dict[str, int], words: str) -> None:
    assert told(**missing) == words
