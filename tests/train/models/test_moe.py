"""Mixtures: what tokens do among experts, and the loss that keeps experts evenly used."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from meshwright.train.models.attention import Context
from meshwright.train.models.balance import balance_loss
from meshwright.train.models.build import build_model, load_architecture
from meshwright.train.models.experts import Experts, apply_experts
from meshwright.train.models.grouped import grouped_experts, padded
from meshwright.train.models.init import init_module
from meshwright.train.models.moe import Moe

BATCH, SEQ, HIDDEN, EXPERTS, K = 3, 10, 64, 8, 2


def mixture(**changes: object) -> Moe:
    """One mixture of tiny-mixtral in float64 with large random weights, so that routing is far from even."""
    architecture = dataclasses.replace(load_architecture("tiny-mixtral"), **changes)
    model = build_model(architecture, device="cpu", dtype=torch.float64)
    init_module(model, 0)
    moe = model.layers["0"].moe
    with torch.no_grad():
        for parameter in moe.parameters():
            parameter.mul_(10)
    return moe


def hidden(seed: int = 0) -> Tensor:
    return torch.randn(BATCH * SEQ, HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def context() -> Context:
    sequence_of = torch.arange(BATCH).repeat_interleave(SEQ)
    return Context(torch.arange(SEQ).expand(BATCH, -1), None, None, sequence_of)


def by_hand(moe: Moe, x: Tensor) -> Tensor:
    """Token by token, expert by expert."""
    out = []
    for token in x:
        probabilities = (moe.router.weight @ token).softmax(0)
        best = probabilities.sort(descending=True).indices[:K]
        weights = probabilities[best] / probabilities[best].sum()
        e = moe.experts
        out.append(
            sum(
                w * (e.down[i] @ (functional.silu(e.gate[i] @ token) * (e.up[i] @ token)))
                for w, i in zip(weights, best, strict=True)
            )
        )
    return torch.stack(out)


def test_tokens_visit_their_experts_one_by_one() -> None:
    moe, x = mixture(balance_coefficient=0.0), hidden()
    torch.testing.assert_close(moe(x, context()), by_hand(moe, x), rtol=1e-12, atol=1e-12)


def balance_by_hand(moe: Moe, x: Tensor) -> Tensor:
    """Σ over sequences of E/k · Σ_e (share of tokens that visit e) · (mean probability of e)."""
    total = torch.zeros((), dtype=torch.float64)
    for tokens in x.view(BATCH, SEQ, HIDDEN):
        probabilities = (tokens @ moe.router.weight.T).softmax(-1)
        visits = torch.zeros(SEQ, EXPERTS, dtype=torch.float64)
        visits.scatter_(1, probabilities.topk(K).indices, 1.0)
        total = total + EXPERTS / K * (visits.mean(0) * probabilities.mean(0)).sum()
    return total


def test_the_balance_loss_enters_the_gradient_as_if_it_were_added_to_the_loss() -> None:
    attached, plain, x = mixture(balance_coefficient=0.3), mixture(balance_coefficient=0.0), hidden()
    attached.balance_scale = 0.25
    weights = hidden(1)
    (attached(x, context()) * weights).sum().backward()
    ((plain(x, context()) * weights).sum() + 0.25 * 0.3 * balance_by_hand(plain, x)).backward()
    for (name, a), (_, b) in zip(attached.named_parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12, msg=name)


def test_the_balance_loss_enters_once_when_the_layer_is_computed_twice() -> None:
    plain, again, x = mixture(balance_coefficient=0.3), mixture(balance_coefficient=0.3), hidden()
    x.requires_grad_()
    (plain(x, context()) * 2).sum().backward()
    (checkpoint(again, x, context(), use_reentrant=False) * 2).sum().backward()
    for a, b in zip(plain.parameters(), again.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_an_even_router_has_a_balance_loss_of_one_and_a_collapsed_one_of_experts_over_k() -> None:
    sequence_of = torch.zeros(8, dtype=torch.int64)
    even = torch.arange(16).view(8, 2) % 8
    loss = partial(balance_loss, sequence_of=sequence_of, sequences=1, count_reduce=lambda counts: counts)
    assert loss(torch.full((8, 8), 1 / 8, dtype=torch.float64), even).item() == pytest.approx(1.0)
    collapsed = torch.zeros(8, 8, dtype=torch.float64)
    collapsed[:, :2] = 0.5
    assert loss(collapsed, torch.tensor([[0, 1]]).expand(8, -1)).item() == pytest.approx(8 / 2)


@pytest.mark.parametrize("pieces", [2, 3, 5])
def test_pieces_of_sequences_on_several_ranks_give_the_gradient_of_the_whole(pieces: int) -> None:
    """Sequence parallelism cuts the flattened tokens, so a piece may hold parts of two sequences."""
    whole, x, weights = mixture(balance_coefficient=0.3), hidden(), hidden(1)
    (whole(x, context()) * weights).sum().backward()
    visits = whole.route(x)[0]
    counts = torch.zeros(BATCH, EXPERTS, dtype=torch.int64)
    for sequence, experts in zip(context().sequence_of.tolist(), visits.tolist(), strict=True):
        counts[sequence, experts] += 1

    cut, local = mixture(balance_coefficient=0.3), []
    cut.count_reduce = lambda mine: (local.append(mine), counts)[1]
    for i in range(pieces):
        cut.local_rows = lambda rows, i=i: rows.chunk(pieces)[i]
        (cut(x.chunk(pieces)[i], context()) * weights.chunk(pieces)[i]).sum().backward()
    assert torch.equal(sum(local), counts)
    for (name, a), (_, b) in zip(cut.named_parameters(), whole.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12, msg=name)


def test_without_a_coefficient_nothing_is_counted() -> None:
    moe = mixture(balance_coefficient=0.0)
    moe.count_reduce = lambda counts: pytest.fail("counted")
    moe(hidden(), context()).sum().backward()


@pytest.mark.parametrize("counts", [(4, 0, 3, 0, 0, 1, 0, 2), (0,) * 8])
def test_experts_that_nobody_visits_get_a_gradient_of_zeros(counts: tuple[int, ...]) -> None:
    experts = mixture().experts
    x = torch.randn(sum(counts), HIDDEN, dtype=torch.float64)
    out = apply_experts(x, torch.tensor(counts), experts)
    assert out.shape == x.shape
    out.sum().backward()
    for parameter in experts.parameters():
        assert parameter.grad is not None
        for e, count in enumerate(counts):
            assert bool(parameter.grad[e].any()) == bool(count)


@pytest.mark.parametrize("counts", [(4, 0, 3, 0, 0, 1, 0, 2), (0, 0, 0, 0, 9, 0, 0, 0), (8, 8, 8, 8, 8, 8, 8, 8)])
def test_grouped_products_equal_one_product_an_expert(counts: tuple[int, ...]) -> None:
    experts, grouped = mixture().experts.float(), mixture().experts.float()
    x = torch.randn(sum(counts), HIDDEN)
    weights = torch.randn_like(x)
    (apply_experts(x, torch.tensor(counts), experts) * weights).sum().backward()
    (by_groups(grouped, x, torch.tensor(counts)) * weights).sum().backward()
    torch.testing.assert_close(
        by_groups(grouped, x, torch.tensor(counts)), apply_experts(x, torch.tensor(counts), experts)
    )
    for a, b in zip(grouped.parameters(), experts.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def by_groups(e: Experts, x: Tensor, counts: Tensor) -> Tensor:
    return grouped_experts(x, counts, e.gate, e.up, e.down, e.act)


def test_no_group_is_empty_and_all_begin_at_a_multiple_of_eight() -> None:
    places, ends, rows = padded(torch.tensor([3, 0, 9]), 12)
    assert places.tolist() == [0, 1, 2, *range(16, 25)]
    assert ends.tolist() == [8, 16, rows]
    assert rows % 8 == 0
    assert rows >= 32


def test_capacity_drops_the_visits_that_come_last() -> None:
    """Six tokens that all want experts 0 and 1 of 8: capacity 2.0 leaves each expert 2.0 · 12 / 8 = 3 visits."""
    moe = mixture(capacity_factor=2.0, balance_coefficient=0.0)
    with torch.no_grad():
        moe.router.weight.zero_()
        moe.router.weight[0], moe.router.weight[1] = 2.0, 1.0
    x = torch.rand(6, HIDDEN, dtype=torch.float64)
    out = moe(x, context())
    assert out[:3].any(dim=1).all()
    assert not out[3:].any()
    torch.testing.assert_close(out[:3], by_hand(moe, x[:3]), rtol=1e-12, atol=1e-12)
