"""Which layers of a Model are mixtures of experts."""

from __future__ import annotations

import pytest

from meshwright.spec.errors import ModelError
from meshwright.spec.model import Experts, Model
from meshwright.spec.model_rules import checked


def model(layers: int = 6, heads: int = 8, kv_heads: int = 8, experts: Experts | None = None) -> Model:
    return Model("m", layers, 64, heads, kv_heads, 8, 128, 1000, experts=experts)


@pytest.mark.parametrize(
    ("experts", "mixtures"),
    [
        (None, []),
        (Experts(8, 2, 32), [0, 1, 2, 3, 4, 5]),
        (Experts(8, 2, 32, first_dense_layers=3), [3, 4, 5]),
        (Experts(8, 2, 32, layer_every=2), [1, 3, 5]),
        (Experts(8, 2, 32, first_dense_layers=1, layer_every=2), [2, 4]),
        (Experts(8, 2, 32, dense_layers=frozenset({0, 5})), [1, 2, 3, 4]),
    ],
)
def test_mixture_layers_follow_the_pattern(experts: Experts | None, mixtures: list[int]) -> None:
    m = model(experts=experts)
    assert [i for i in range(m.layers) if m.is_moe_layer(i)] == mixtures
    assert m.moe_layers == len(mixtures)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (model(layers=0), "layers is 0"),
        (model(heads=8, kv_heads=3), "3 key-value heads must divide 8 heads. Legal: 2, 4, 1, 8"),
        (model(experts=Experts(4, 5, 32)), "cannot visit 5 of 4 experts"),
        (model(experts=Experts(4, 2, 32, first_dense_layers=6)), "none of the 6 layers"),
    ],
)
def test_impossible_models_are_refused(wrong: Model, message: str) -> None:
    with pytest.raises(ModelError) as refusal:
        checked(wrong)
    assert message in str(refusal.value)
