"""The global norm and the clip are those of one process, however the parameters are cut."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from meshwright.modes.parts import Part
from meshwright.train.optim.norm import clip, global_norm
from tests.train.optim.cuts import CUTS, error, gradients, initial, make_parts, set_gradients


def by_torch(max_norm: float) -> tuple[float, dict[str, torch.Tensor]]:
    """torch.nn.utils.clip_grad_norm_ on the whole gradients: the norm before, and the gradients after."""
    whole = [nn.Parameter(value) for value in initial().values()]
    for parameter, gradient in zip(whole, gradients(0).values(), strict=True):
        parameter.grad = gradient
    norm = nn.utils.clip_grad_norm_(whole, max_norm)
    return float(norm), dict(zip(initial(), [parameter.grad for parameter in whole], strict=True))


def clip_cuts(max_norm: float) -> dict[str, tuple[float, list]]:
    """By cut: the norm and this rank's gradients after the clip."""
    results = {}
    for cut in CUTS:
        parts = make_parts(cut, initial())
        set_gradients(parts, gradients(0))
        norm = global_norm(parts)
        clip(parts, norm, max_norm)
        held = [(part.name, (part.offset, part.size), part.gradient) for part in parts]
        results[cut] = (float(norm), held)
    return results


@pytest.mark.parametrize("max_norm", [0.5, 1000.0])
def test_boxes_have_the_norm_and_the_clip_of_the_whole(ranks, max_norm: float) -> None:
    norm, clipped = by_torch(max_norm)
    for of_rank in ranks.run(clip_cuts, max_norm):
        for cut, (ours, held) in of_rank.items():
            assert ours == pytest.approx(norm, rel=1e-14), cut
            assert error(held, clipped) <= 1e-14, cut


def two_stages() -> float:
    """Ranks 0 and 1 are stages of one rank each; both hold the tied table, with one gradient."""
    groups = [dist.new_group([0]), dist.new_group([1])]
    rank = dist.get_rank()
    parts = make_parts("whole", initial(), groups[rank])
    set_gradients(parts, gradients(0))
    first = parts[:2] if rank == 0 else [*parts[2:], parts[0]]
    first[-1].tied_copy = rank == 1
    return float(global_norm(first))


def test_stages_are_summed_and_a_tied_table_counts_once(ranks) -> None:
    assert ranks.run(two_stages, world=2) == pytest.approx([by_torch(1.0)[0]] * 2, rel=1e-14)


def some_without() -> float:
    """Only rank 1 has a gradient."""
    parts = make_parts("rows", {"w": torch.ones(4, 3)})
    if dist.get_rank() == 1:
        parts[0].parameter.grad = torch.full_like(parts[0].data, 2.0)
    return float(global_norm(parts))


def test_ranks_without_gradients_take_part(ranks) -> None:
    assert ranks.run(some_without, world=2) == pytest.approx([24**0.5] * 2)


def local(gradient: torch.Tensor) -> list[Part]:
    """One whole parameter in one process."""
    parameter = nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient
    shape = tuple(gradient.shape)
    return [Part("w", shape, (0,) * len(shape), shape, parameter, 1, None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_small_gradients_are_summed_without_loss(dtype: torch.dtype) -> None:
    # One after the other in float32, as in torch.linalg.vector_norm on the CPU, they are 6e-5 off.
    gradient = torch.randn(3_000_001, generator=torch.Generator().manual_seed(0)).to(dtype)
    parts = local(gradient)
    norm = global_norm(parts)
    assert norm.dtype == torch.float32
    assert float(norm) == pytest.approx(float(gradient.double().norm()), rel=3e-7)
    clip(parts, norm, 1.0)
    assert float(global_norm(parts)) == pytest.approx(1.0, rel=1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_gradients_with_a_norm_that_is_not_finite_stay_as_they_are(bad: float) -> None:
    parts = local(torch.tensor([3.0, bad, 4.0]))
    norm = global_norm(parts)
    assert not norm.isfinite()
    clip(parts, norm, 1.0, scale=8.0)
    assert parts[0].gradient.tolist() == pytest.approx([3.0, bad, 4.0], nan_ok=True)


@pytest.mark.parametrize(("max_norm", "expected"), [(None, [3.0, 4.0]), (10.0, [3.0, 4.0]), (2.5, [1.5, 2.0])])
def test_a_loss_scale_leaves_with_the_clip(max_norm: float | None, expected: list[float]) -> None:
    parts = local(torch.tensor([3.0, 4.0], dtype=torch.float64) * 1024)
    clip(parts, global_norm(parts), max_norm, scale=1024)
    assert parts[0].gradient.tolist() == pytest.approx(expected, rel=1e-6)
