"""Collectives with gradients: forward as defined, backward their transpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from meshwright.modes import comm
from meshwright.train.launch.pool import RankPool

WORLD = 4


def inputs(rank: int, rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(rows, 3, generator=generator, dtype=torch.float64)


def weights(rank: int, rows: int) -> torch.Tensor:
    """What each rank's output counts for."""
    return inputs(rank + 50, rows)


def run(name: str, rows: int, out_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Output, and gradient of Σ weights · output."""
    rank = dist.get_rank()
    x = inputs(0 if name in ("copy", "split") else rank, rows).requires_grad_()  # these two start from one tensor
    assert dist.group.WORLD is not None
    out = getattr(comm, name)(x, dist.group.WORLD)
    kept = weights(0 if name == "all_sum" else rank, out_rows)  # what follows a sum is the same on all ranks
    (out * kept).sum().backward()
    assert x.grad is not None
    return out.detach(), x.grad


def whole(name: str, xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The ranks' outputs, as one process computes them from the ranks' inputs."""
    if name == "gather":
        return [torch.cat(xs)] * WORLD
    total = torch.stack(xs).sum(0)
    return {"scatter_sum": list(total.chunk(WORLD)), "all_sum": [total] * WORLD}[name]


@pytest.mark.parametrize(("name", "rows", "out_rows"), [("gather", 2, 8), ("scatter_sum", 8, 2)])
def test_gathers_and_scatters_are_each_other_s_transpose(ranks: RankPool, name: str, rows: int, out_rows: int) -> None:
    xs = [inputs(rank, rows).requires_grad_() for rank in range(WORLD)]
    outs = whole(name, xs)
    torch.stack([(out * weights(rank, out_rows)).sum() for rank, out in enumerate(outs)]).sum().backward()
    for (out, gradient), expected, x in zip(ranks.run(run, name, rows, out_rows), outs, xs, strict=True):
        assert torch.allclose(out, expected.detach(), rtol=1e-14)
        assert torch.allclose(gradient, x.grad, rtol=1e-13)  # type: ignore[arg-type]


def test_copy_sums_gradients_and_all_sum_passes_them(ranks: RankPool) -> None:
    total = torch.stack([weights(rank, 4) for rank in range(WORLD)]).sum(0)
    for out, gradient in ranks.run(run, "copy", 4, 4):
        assert torch.equal(out, inputs(0, 4))
        assert torch.allclose(gradient, total, rtol=1e-14)
    summed = torch.stack([inputs(rank, 4) for rank in range(WORLD)]).sum(0)
    for out, gradient in ranks.run(run, "all_sum", 4, 4):
        assert torch.allclose(out, summed, rtol=1e-14)
        assert torch.equal(gradient, weights(0, 4))


def test_split_keeps_a_slice_and_its_gradient_is_partial(ranks: RankPool) -> None:
    for rank, (out, gradient) in enumerate(ranks.run(run, "split", 8, 2)):
        assert torch.equal(out, inputs(0, 8)[2 * rank : 2 * rank + 2])
        expected = torch.zeros(8, 3, dtype=torch.float64)
        expected[2 * rank : 2 * rank + 2] = weights(rank, 2)
        assert torch.equal(gradient, expected)


def strided(name: str) -> bool:
    """A tensor that is not contiguous is sent as its numbers, not as its memory."""
    assert dist.group.WORLD is not None
    x = inputs(dist.get_rank(), 8).t().contiguous().t()
    collective: Callable[..., torch.Tensor] = getattr(comm, name)
    return torch.equal(collective(x, dist.group.WORLD), collective(x.contiguous(), dist.group.WORLD))


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_reduce"])
def test_strides_do_not_matter(ranks: RankPool, name: str) -> None:
    assert ranks.run(strided, name) == [True] * WORLD
