"""Optimizers equal torch.optim on whole parameters, however the parameters are cut."""

from __future__ import annotations

import pytest
import torch

from meshwright.train.optim.optimizer import make_optimizer
from tests.train.optim.cuts import CUTS, boxes, error, initial, make_parts, train, train_cuts
from tests.train.optim.references import CONFIGS, reference

NAMES = tuple(CONFIGS)


@pytest.mark.parametrize("name", NAMES)
def test_whole_parameters_end_where_the_reference_ends(name: str) -> None:
    parts = make_parts("whole", initial())
    train(make_optimizer(parts, CONFIGS[name]), parts)
    assert error([(part.name, (part.offset, part.size), part.data) for part in parts], reference(name)) <= 1e-12


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_boxes_end_where_the_whole_ends(ranks, name: str, world: int) -> None:
    results = ranks.run(train_cuts, CONFIGS[name], world=world)
    errors = {cut: error([box for of_rank in results for box in of_rank[cut]], reference(name)) for cut in CUTS}
    assert max(errors.values()) <= 1e-12, errors


def test_the_cuts_of_these_tests_cover_every_element_and_have_empty_and_uneven_boxes() -> None:
    sizes = set()
    for cut in CUTS:
        for index, (_, whole) in enumerate(initial().items()):
            count = torch.zeros_like(whole)
            for offset, size in boxes(cut, index, tuple(whole.shape), 4):
                count[tuple(slice(at, at + length) for at, length in zip(offset, size, strict=True))] += 1
                sizes.add(size)
            assert count.min() >= 1
    assert {(2, 7), (1, 7), (0, 7)} <= sizes
