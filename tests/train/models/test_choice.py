"""Which experts a token visits, on scores small enough to choose by hand."""

from __future__ import annotations

import torch

from meshwright.train.models.architecture import Routing
from meshwright.train.models.choice import choose, scores_of

SCORES = torch.tensor([[0.9, 0.1, 0.5, 0.6, 0.2, 0.8]], dtype=torch.float64)


def test_without_groups_the_largest_scores_win() -> None:
    experts, weights = choose(SCORES, None, 2, Routing())
    assert experts.tolist() == [[0, 5]]
    assert weights.tolist() == [[0.9, 0.8]]


def test_groups_are_weighed_by_their_best_scores() -> None:
    # Pairs (0, 1), (2, 3), (4, 5): the best are 0.9, 0.6, 0.8; the sums of two 1.0, 1.1, 1.0.
    assert choose(SCORES, None, 2, Routing(groups=3, groups_kept=1, group_best=1))[0].tolist() == [[0, 1]]
    assert choose(SCORES, None, 2, Routing(groups=3, groups_kept=1, group_best=2))[0].tolist() == [[3, 2]]


def test_a_correction_chooses_and_does_not_weigh() -> None:
    correction = torch.tensor([-1.0, 1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    experts, weights = choose(SCORES, correction, 2, Routing(corrected=True))
    assert experts.tolist() == [[1, 5]]
    assert weights.tolist() == [[0.1, 0.8]]


def test_scores_are_a_distribution_or_each_by_itself() -> None:
    logits = torch.tensor([[0.0, 0.0]])
    assert scores_of(logits, Routing("softmax")).tolist() == scores_of(logits, Routing("sigmoid")).tolist()
    assert scores_of(logits.repeat(1, 2), Routing("sigmoid")).sum().item() == 2.0
