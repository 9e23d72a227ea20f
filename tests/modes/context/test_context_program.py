"""Context kernels inside programs: models, recomputation, backward in two halves, compiled blocks, wrong requests."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend
from torch.utils.checkpoint import checkpoint

from meshwright.modes.context import Kernel, apply_context, context_kernel, split_batch
from meshwright.modes.mesh import Mesh, make_mesh
from meshwright.modes.recipe import Recipe
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import CONTEXT_KINDS, Layout
from meshwright.train.batch import Batch
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.attention import sdpa
from meshwright.train.models.build import build_model
from meshwright.train.models.decoder import Decoder
from meshwright.train.models.init import init_module

SEQ = 24


def batch(documents: bool) -> Batch:
    torch.manual_seed(7)
    tokens = torch.randint(0, 256, (2, SEQ + 1))
    positions, of = torch.arange(SEQ).repeat(2, 1), None
    if documents:
        of = (torch.arange(SEQ) >= 9).long().repeat(2, 1)
        positions = positions - 9 * of
    return Batch(tokens[:, :-1], tokens[:, 1:], positions, of)


def decoder() -> Decoder:
    model = build_model("tiny-llama", device="cpu", dtype=torch.float64)
    init_module(model, 0)
    return model


def loss_and_gradients(model: Decoder, part: Batch) -> tuple[Tensor, list[Tensor]]:
    loss = cross_entropy(model(part.tokens, part.positions, part.documents), part.targets.flatten(), reduction="sum")
    return loss.detach(), list(torch.autograd.grad(loss, list(model.parameters())))


def model_errors(kind: str, documents: bool) -> float:
    """The worst relative error of the loss and of a gradient, summed over context ranks."""
    layout = Layout(context=dist.get_world_size(), context_kind=kind)
    mesh = make_mesh(layout)
    whole = batch(documents)
    right_loss, right = loss_and_gradients(decoder(), whole)
    model = decoder()
    apply_context(model, mesh, layout, model.recipe)
    loss, found = loss_and_gradients(model, split_batch(whole, layout, mesh.index("context")))
    worst = 0.0
    for a, b in zip([loss, *found], [right_loss, *right], strict=True):
        dist.all_reduce(a, group=mesh.group("context"))
        worst = max(worst, float((a - b).abs().max() / b.abs().max()))
    return worst


@pytest.mark.parametrize("kind", CONTEXT_KINDS)
@pytest.mark.parametrize("documents", [False, True])
def test_a_model_computes_the_same_over_context_ranks(ranks: RankPool, kind: str, documents: bool) -> None:
    assert max(ranks.run(model_errors, kind, documents, world=4)) < 1e-11


def again(kind: str) -> list[float]:
    """Differences to one plain backward pass: recomputed, and asked for in two halves on a kept graph."""
    assert dist.group.WORLD is not None
    kernel = context_kernel(kind, dist.group.WORLD)
    torch.manual_seed(dist.get_rank())
    q, k, v = (torch.randn(2, 4, 6, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    documents, positions = torch.zeros(2, 6, dtype=torch.int64), torch.arange(6).repeat(2, 1)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return kernel(q, k, v, causal=True, window=0, documents=documents, positions=positions)

    plain = torch.autograd.grad(attend(q, k, v).square().sum(), (q, k, v))
    recomputed = torch.autograd.grad(
        checkpoint(attend, q, k, v, use_reentrant=False).square().sum(), (q, k, v)  # type: ignore[union-attr]
    )  # fmt: skip
    loss = attend(q, k, v).square().sum()
    halves = [
        *torch.autograd.grad(loss, (q,), retain_graph=True),
        *torch.autograd.grad(loss, (k, v), retain_graph=True),
    ]
    return [float((a - b).abs().max()) for found in (recomputed, halves) for a, b in zip(found, plain, strict=True)]


@pytest.mark.parametrize("kind", CONTEXT_KINDS)
def test_backward_may_run_again_and_in_halves(ranks: RankPool, kind: str) -> None:
    for differences in ranks.run(again, kind, world=2):
        assert max(differences) == 0.0


def other_inner_kernel() -> bool:
    """Whether Ulysses hands whole sequences, documents and positions to a kernel of the user's."""
    assert dist.group.WORLD is not None
    seen: list[list[int]] = []

    def inner(q: Tensor, k: Tensor, v: Tensor, **options: Tensor) -> Tensor:
        seen.append(options["positions"][0].tolist())
        return sdpa(q, k, v, **options)  # type: ignore[arg-type]

    rank = dist.get_rank()
    torch.manual_seed(rank)
    q, k = torch.randn(1, 4, 6, 8, dtype=torch.float64), torch.randn(1, 2, 6, 8, dtype=torch.float64)
    options = {"documents": torch.full((1, 6), rank), "positions": torch.arange(6 * rank, 6 * rank + 6)[None]}
    kernels = [context_kernel("ulysses", dist.group.WORLD, one) for one in (inner, None)]
    mine, ours = (kernel(q, k, k, causal=True, window=3, **options) for kernel in kernels)
    return seen == [list(range(12))] and torch.allclose(mine, ours, rtol=1e-13)


def test_ulysses_takes_any_attention_kernel(ranks: RankPool) -> None:
    assert all(ranks.run(other_inner_kernel, world=2))


def headless() -> None:
    assert dist.group.WORLD is not None
    x, at = torch.zeros(1, 6, 4, 8), torch.zeros(1, 4, dtype=torch.int64)
    context_kernel("ulysses", dist.group.WORLD)(x, x, x, causal=True, window=0, documents=None, positions=at)


def test_ulysses_refuses_heads_that_do_not_divide(ranks: RankPool) -> None:
    with pytest.raises(LayoutError, match=r"each of 4 context ranks .* there are 6 .* Legal: cp3:ulysses"):
        ranks.run(headless, world=4)


def nothing_to_replace(attention: str | None) -> None:
    layout = Layout(context=2)
    recipe = Recipe(order=("0",), attention=attention)
    apply_context(nn.Sequential(nn.Linear(2, 2)), make_mesh(layout), layout, recipe)


@pytest.mark.parametrize(("attention", "message"), [(None, "names no attention"), ("0", "No module '0'")])
def test_a_model_without_kernels_is_refused(ranks: RankPool, attention: str | None, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        ranks.run(nothing_to_replace, attention, world=2)


def test_one_context_rank_changes_nothing() -> None:
    model = decoder()
    mesh = Mesh(Layout(), torch.device("cpu"), {})
    apply_context(model, mesh, Layout(), model.recipe)
    assert model.layers["0"].attention.kernel is sdpa


class Layer(nn.Module):
    """A projection around a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.kernel = nn.Linear(16, 16, dtype=torch.float64), kernel

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        y = self.linear(x).view(1, -1, 4, 4).transpose(1, 2)
        out = self.kernel(y, y, y, causal=True, window=0, documents=None, positions=positions)
        return self.linear(out.transpose(1, 2).reshape(x.shape)).relu()  # type: ignore[no-any-return]


def compiled() -> bool:
    """Whether a compiled layer computes what a plain one does."""
    assert dist.group.WORLD is not None
    kernel = context_kernel("ring", dist.group.WORLD)
    plain, layer = Layer(kernel), Layer(kernel)
    layer.compile(backend="eager")
    x, found = torch.randn(6, 16, dtype=torch.float64), []
    for one in (plain, layer):
        out = one(x, torch.arange(6)[None])
        found += [out, *torch.autograd.grad(out.sum(), list(one.parameters()))]
    return all(torch.allclose(a, b, rtol=1e-13) for a, b in zip(found[:3], found[3:], strict=True))


def test_a_block_around_a_kernel_may_be_compiled(ranks: RankPool) -> None:
    assert all(ranks.run(compiled, world=2))


@pytest.mark.parametrize("kind", CONTEXT_KINDS)
def test_fake_tensors_pass_through_without_a_value_being_asked(kind: str) -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    try:
        assert dist.group.WORLD is not None
        kernel = context_kernel(kind, dist.group.WORLD)
        with torch._subclasses.fake_tensor.FakeTensorMode():
            q, k = torch.empty(2, 8, 6, 24, requires_grad=True), torch.empty(2, 2, 6, 24, requires_grad=True)
            at = torch.zeros(2, 6, dtype=torch.int64)
            for documents, window in ((None, 0), (at, 3)):
                out = kernel(q, k, k, causal=True, window=window, documents=documents, positions=at)
                dq, dk = torch.autograd.grad(out.sum(), (q, k))
                assert (out.shape, dq.shape, dk.shape) == (q.shape, q.shape, k.shape)
    finally:
        dist.destroy_process_group()
