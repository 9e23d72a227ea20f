"""Which tokens a context rank holds."""

from __future__ import annotations

import pytest
import torch

from meshwright.modes.context.split import apart, indices, natural, split_batch, take
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import CONTEXT_KINDS, Layout
from meshwright.train.batch import Batch


@pytest.mark.parametrize("kind", CONTEXT_KINDS)
@pytest.mark.parametrize(("seq", "ranks"), [(12, 1), (12, 2), (12, 3), (12, 4), (12, 12)])
def test_every_token_is_held_once(kind: str, seq: int, ranks: int) -> None:
    layout = Layout(context=ranks, context_kind=kind)
    held = torch.cat([indices(seq, layout, rank) for rank in range(ranks)])
    assert held.dtype == torch.int64
    assert sorted(held.tolist()) == list(range(seq))


@pytest.mark.parametrize(("kind", "seq"), [("ulysses", 8), ("ring", 6), ("allgather", 6)])
def test_ulysses_and_odd_parts_are_consecutive(kind: str, seq: int) -> None:
    layout = Layout(context=2, context_kind=kind)
    assert indices(seq, layout, 1).tolist() == list(range(seq // 2, seq))


def test_a_batch_is_cut_by_the_same_indices_everywhere() -> None:
    tokens = torch.arange(16).view(2, 8)
    batch = Batch(tokens, tokens + 1, torch.arange(8).expand(2, 8), None)
    for rank in range(2):
        part = split_batch(batch, Layout(context=2), rank)
        own = indices(8, Layout(context=2), rank)
        assert torch.equal(part.tokens, tokens[:, own])
        assert torch.equal(part.targets, tokens[:, own] + 1)
        assert torch.equal(part.positions, own.expand(2, 4))
        assert part.documents is None


def test_documents_are_cut_too() -> None:
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    batch = Batch(tokens, tokens, tokens, torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2]]))
    part = split_batch(batch, Layout(context=2), 0)
    assert part.documents is not None
    assert part.documents.tolist() == [[0, 0, 2, 2]]


@pytest.mark.parametrize("kind", CONTEXT_KINDS)
@pytest.mark.parametrize("seq", [12, 9])
def test_parts_of_all_ranks_come_together_and_apart_again(kind: str, seq: int) -> None:
    whole = torch.arange(2 * seq * 5).view(2, seq, 5)
    layout = Layout(context=3, context_kind=kind)
    parts = torch.stack([take(whole, layout, rank) for rank in range(3)])
    assert torch.equal(natural(parts, kind, 1), whole)
    assert torch.equal(apart(whole, 3, kind, 1), parts)


def test_a_sequence_that_does_not_divide_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"10 tokens cannot be split over 4 context ranks. Legal: cp2, cp1"):
        indices(10, Layout(context=4), 0)
