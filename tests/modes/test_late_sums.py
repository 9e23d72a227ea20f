"""Reduce-scatters that a CPU rank only begins in backward."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshwright.modes.gradients import complete_gradients, end_step, micro_batch
from meshwright.modes.late_sums import LateSums
from meshwright.modes.mesh import make_mesh
from meshwright.modes.options import Options
from meshwright.modes.parallelize import parallelize
from meshwright.spec.notation import parse_layout
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import build_model
from meshwright.train.models.init import init_module

MODEL = str(Path(__file__).parents[1] / "check" / "models" / "nano-llama.json")


def gradients(layout: str, steps: int, micro_batches: int, rate_limit: int) -> tuple[dict[str, torch.Tensor], int]:
    """This rank's gradients after some steps that nobody clears them between, and the sums on their way before that."""
    mesh = make_mesh(parse_layout(layout))
    model = build_model(MODEL, device="cpu", dtype=torch.float64)
    init_module(model, 0)
    parallel = parallelize(model, mesh, options=Options(rate_limit=rate_limit))
    tokens, positions = torch.arange(16).view(2, 8) + mesh.index("data"), torch.arange(8).expand(2, -1)
    flying = 0
    for _ in range(steps):
        for index in range(micro_batches):
            with micro_batch(parallel, last=index == micro_batches - 1):
                parallel.runners[0](tokens, positions).square().mean().backward()
        late = parallel.stages[0].late_sums
        flying = len(late._pending) if isinstance(late, LateSums) else 0
        complete_gradients(parallel)
        end_step(parallel)
    return {part.name: part.gradient.clone() for part in parallel.parts if part.gradient is not None}, flying


@pytest.mark.parametrize("layout", ["zero1:2", "zero2:2", "fsdp2"])
@pytest.mark.parametrize(("steps", "micro_batches"), [(2, 1), (1, 2), (2, 2)])
def test_sums_that_are_added_to_others_are_waited_for(
    layout: str, steps: int, micro_batches: int, ranks: RankPool
) -> None:
    once = ranks.run(gradients, layout, 1, 1, 2, world=2)
    again = ranks.run(gradients, layout, steps, micro_batches, 2, world=2)
    for (first, _), (more, _) in zip(once, again, strict=True):
        for name, gradient in first.items():
            torch.testing.assert_close(more[name], steps * micro_batches * gradient, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("layout", "rate_limit", "flying"), [("fsdp2", 2, 2), ("zero2:2", 1, 1), ("hsdp2x2", 2, 0)])
def test_as_many_sums_are_on_their_way_after_backward_as_the_rate_limit_lets(
    layout: str, rate_limit: int, flying: int, ranks: RankPool
) -> None:
    world = parse_layout(layout).devices
    assert {seen for _, seen in ranks.run(gradients, layout, 1, 1, rate_limit, world=world)} == {flying}
