"""Tokens that travel to experts on other ranks, or experts split by features, against all experts in one place."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from meshwright.modes.cuts import Cuts
from meshwright.modes.experts import apply_experts
from meshwright.modes.mesh import make_mesh
from meshwright.modes.recipe import Recipe
from meshwright.spec.errors import LayoutError
from meshwright.spec.notation import parse_layout
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import build_model
from meshwright.train.models.experts import Experts, local_exchange
from tests.modes.fake import fake_mesh

HIDDEN, EXPERTS, PER_TOKEN, TOKENS = 6, 8, 3, 5


class Mixture(nn.Module):
    """What `apply_experts` needs of a mixture."""

    def __init__(self, experts: int = EXPERTS, width: int = 4) -> None:
        super().__init__()
        self.experts = Stack(experts, width)
        self.exchange = local_exchange


class Stack(nn.Module):
    """Experts as the Decoder has them, without its configuration."""

    def __init__(self, experts: int, width: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(experts)
        self.act = torch.nn.functional.silu
        for key, shape in (("gate", (width, HIDDEN)), ("up", (width, HIDDEN)), ("down", (HIDDEN, width))):
            numbers = torch.randn(experts, *shape, generator=generator, dtype=torch.float64)
            self.register_parameter(key, nn.Parameter(numbers))

    forward = Experts.forward


RECIPE = Recipe(order=("moe",), experts="moe")


def model(**numbers: int) -> nn.ModuleDict:
    return nn.ModuleDict({"moe": Mixture(**numbers)})


def tokens(rank: int, routing: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A rank's tokens, their experts and weights, and what each output counts for."""
    generator = torch.Generator().manual_seed(rank)
    n = {"uneven": TOKENS + 3 * rank, "none": 0 if rank == 1 else TOKENS}.get(routing, TOKENS)
    x = torch.randn(n, HIDDEN, generator=generator, dtype=torch.float64)
    weights = torch.rand(n, PER_TOKEN, generator=generator, dtype=torch.float64)
    counts_for = torch.randn(n, HIDDEN, generator=generator, dtype=torch.float64)
    if routing == "one expert":
        expert_of = torch.tensor([0, 1, 2]).expand(n, -1)  # the last ranks' experts are visited by nobody
    else:
        expert_of = torch.stack([torch.randperm(EXPERTS, generator=generator)[:PER_TOKEN] for _ in range(n)] or [
            torch.empty(PER_TOKEN, dtype=torch.int64)
        ])[:n]  # fmt: skip
    return x, expert_of, weights, counts_for


Found = tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]


def exchanged(layout: str, routing: str) -> Found:
    """Output, gradients of tokens and weights, and of this rank's experts, summed over the ranks that hold the same."""
    mesh = make_mesh(parse_layout(layout))
    mixture, cuts = model(), Cuts()
    apply_experts(mixture, mesh, RECIPE, cuts)
    x, expert_of, weights, counts_for = tokens(dist.get_rank(), routing)
    x.requires_grad_()
    weights.requires_grad_()
    moe = mixture["moe"]
    out = moe.exchange(x, expert_of, weights, moe.experts)
    (out * counts_for).sum().backward()
    gradients = {}
    for key, parameter in moe.experts.named_parameters():
        assert parameter.grad is not None, key
        if mesh.layout.expert > 1:
            dist.all_reduce(parameter.grad, group=mesh.group("expert_data"))
        gradients[key] = parameter.grad
    assert x.grad is not None
    assert weights.grad is not None
    return out.detach(), x.grad, weights.grad, gradients


def expected(world: int, routing: str) -> list[Found]:
    """The same in one process, rank after rank; the experts' gradients are the sum over all ranks."""
    mixture = model()["moe"]
    found = []
    for rank in range(world):
        x, expert_of, weights, counts_for = tokens(rank, routing)
        x.requires_grad_()
        weights.requires_grad_()
        out = local_exchange(x, expert_of, weights, mixture.experts)
        (out * counts_for).sum().backward()
        found.append((out.detach(), x.grad, weights.grad, {}))
    total = {key: parameter.grad for key, parameter in mixture.experts.named_parameters()}
    return [(out, x, weights, total) for out, x, weights, _ in found]  # type: ignore[misc]


def assert_close(found: Found, wanted: Found) -> None:
    for one, other in zip(found[:3], wanted[:3], strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("layout", ["ddp2 ep2", "ddp4 ep4", "ddp4 ep2"])
@pytest.mark.parametrize("routing", ["even", "uneven", "one expert", "none"])
def test_tokens_come_back_from_other_ranks_experts(ranks: RankPool, layout: str, routing: str) -> None:
    """Also where ranks have unequal numbers of tokens or none, and where some experts get none."""
    parsed = parse_layout(layout)
    found = ranks.run(exchanged, layout, routing, world=parsed.devices)
    local = EXPERTS // parsed.expert
    for rank, (got, wanted) in enumerate(zip(found, expected(parsed.devices, routing), strict=True)):
        assert_close(got, wanted)
        first = rank % parsed.expert * local
        for key, gradient in got[3].items():
            assert torch.allclose(gradient, wanted[3][key][first : first + local], rtol=1e-12, atol=1e-13), key


@pytest.mark.parametrize("layout", ["tp2", "tp4"])
def test_experts_split_by_features_are_the_experts(ranks: RankPool, layout: str) -> None:
    world = parse_layout(layout).devices
    found = ranks.run(exchanged, layout, "even", world=world)
    wanted = expected(world, "even")
    for got, one in zip(found, wanted, strict=True):
        assert_close(got, one)
    for key, dim in (("gate", 1), ("up", 1), ("down", 2)):
        whole = torch.cat([got[3][key] for got in found], dim)
        assert torch.allclose(whole, wanted[0][3][key], rtol=1e-12, atol=1e-13), key


@pytest.mark.parametrize(
    ("layout", "numbers", "told"),
    [
        ("ddp4 ep4", {"experts": 6}, "6 experts do not divide over 4"),
        ("tp4", {"width": 6}, "experts of width 6 do not split over 4"),
        ("tp2:nosp ep2", {}, "needs sequence parallelism"),
    ],
)
def test_what_does_not_divide_is_refused(layout: str, numbers: dict[str, int], told: str) -> None:
    with fake_mesh(layout, 0) as mesh, pytest.raises(LayoutError, match=told):
        apply_experts(model(**numbers), mesh, RECIPE, Cuts())


def test_a_model_without_experts_is_left_alone() -> None:
    dense = build_model("tiny-llama")
    with fake_mesh("tp2", 0) as mesh:
        cuts = Cuts()
        apply_experts(dense, mesh, dense.recipe, cuts)
        assert cuts == {}
