"""One step: the loss divided once, gradients summed once, clipped once; the same as torch in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from meshwright.modes.context import split_batch
from meshwright.modes.mesh import make_mesh
from meshwright.spec.notation import parse_layout
from meshwright.train.assemble import assemble
from meshwright.train.batch import IGNORED, Batch
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import build_model, load_architecture
from meshwright.train.models.init import init_module
from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.optimizer import make_optimizer
from meshwright.train.optim.scaler import LossScaler
from meshwright.train.step import Step
from meshwright.train.update import update
from tests.modes.toy import Box, boxes, joined

NANO = str(Path(__file__).with_name("loop") / "nano-llama.json")
LAYOUTS = ["ddp2", "zero2:2", "fsdp2 tp2", "ddp2 cp2", "pp2:1f1b ddp2", "hsdp2x2"]
SEQUENCES, LENGTH = 16, 16


def batch_of(first: int, count: int) -> Batch:
    """Sequences of the global batch, with targets missing here and there: the data ranks count different numbers."""
    tokens = torch.randint(0, 264, (SEQUENCES, LENGTH + 1), generator=torch.Generator().manual_seed(3))
    targets = tokens[:, 1:].clone()
    for row in range(SEQUENCES):
        targets[row, :row] = IGNORED
    rows = slice(first, first + count)
    return Batch(tokens[rows, :-1], targets[rows], torch.arange(LENGTH).expand(count, -1))


TARGETS = batch_of(0, SEQUENCES).target_tokens


def own_batches(step: Step, micro_batches: int) -> list[Batch]:
    """This rank's share of the global batch."""
    mesh = step.parallel.mesh
    count = SEQUENCES // mesh.layout.data // micro_batches
    first = mesh.index("data") // mesh.layout.context * count * micro_batches
    batches = [batch_of(first + i * count, count) for i in range(micro_batches)]
    return [split_batch(batch, mesh.layout, mesh.index("context")) for batch in batches]


def make_step(layout: str) -> Step:
    torch.set_default_dtype(torch.float64)
    return assemble(load_architecture(NANO), make_mesh(parse_layout(layout)), dtype=torch.float64)


def everyone(share: torch.Tensor, step: Step) -> float:
    total = share.clone() if step.reports else torch.zeros_like(share)
    dist.all_reduce(total)
    return float(total)


def one_process() -> torch.nn.Module:
    """The whole model with the numbers that every layout starts from, and its gradients."""
    whole = build_model(NANO, device="cpu", dtype=torch.float64)
    init_module(whole, 0)
    batch = batch_of(0, SEQUENCES)
    logits = whole(batch.tokens, batch.positions)
    whole.loss = F.cross_entropy(logits, batch.targets.flatten(), ignore_index=IGNORED)  # type: ignore[assignment]
    whole.loss.backward()  # type: ignore[operator]
    return whole


def ran(layout: str, micro_batches: int, loss_scale: float) -> tuple[float, list[Box]]:
    step = make_step(layout)
    share = step.run(own_batches(step, micro_batches), target_tokens=TARGETS, loss_scale=loss_scale)
    return everyone(share, step), boxes(step.parallel.parts)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("micro_batches", "loss_scale"), [(2, 1.0), (4, 64.0)])
def test_loss_and_gradients_are_those_of_one_process(
    ranks: RankPool, layout: str, micro_batches: int, loss_scale: float
) -> None:
    whole = one_process()
    found = ranks.run(ran, layout, micro_batches, loss_scale, world=parse_layout(layout).devices)
    assert [loss for loss, _ in found] == pytest.approx([float(whole.loss.detach())] * len(found), rel=1e-12)  # type: ignore[union-attr, operator]
    gradients = joined([rank for _, rank in found])
    for name, parameter in whole.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(gradients[name], parameter.grad * loss_scale, rtol=1e-9, atol=1e-13)


def updated(layout: str, max_norm: float | None, scale: float) -> tuple[float, bool, list[Box], int]:
    """Gradient norm, whether the step was left out, the numbers after it, gradients that are left and not zero."""
    step = make_step(layout)
    optimizer = make_optimizer(step.parallel.parts, OptimConfig(name="sgd", lr=0.5, weight_decay=0.0, momentum=0.0))
    scaler = LossScaler(scale) if scale else None
    done = update(step, optimizer, own_batches(step, 2), target_tokens=TARGETS, max_norm=max_norm, scaler=scaler)
    left = sum(part.gradient is not None and bool(part.gradient.any()) for part in step.parallel.parts)
    return float(done.norm), done.skipped, boxes(step.parallel.parts), left


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("max_norm", "scale"), [(None, 0.0), (0.1, 0.0), (0.1, 1024.0)])
def test_an_update_is_torchs_clip_and_sgd(ranks: RankPool, layout: str, max_norm: float | None, scale: float) -> None:
    whole = one_process()
    norm = torch.nn.utils.clip_grad_norm_(whole.parameters(), max_norm or float("inf"))
    torch.optim.SGD(whole.parameters(), lr=0.5).step()
    found = ranks.run(updated, layout, max_norm, scale, world=parse_layout(layout).devices)
    assert [one[0] for one in found] == pytest.approx([float(norm)] * len(found), rel=1e-12)
    assert {one[1:4:2] for one in found} == {(False, 0)}
    data = joined([boxes for _, _, boxes, _ in found], "data")
    for name, parameter in whole.named_parameters():
        # The clip's coefficient divides by norm + 1e-6, here as there.
        torch.testing.assert_close(data[name], parameter.detach(), rtol=1e-9, atol=1e-12)


def infinite(layout: str) -> tuple[bool, float, bool]:
    """A step with an infinity in one number on the last rank alone: left out, the scale after it, nothing moved."""
    step = make_step(layout)
    parts = step.parallel.parts
    optimizer = make_optimizer(parts, OptimConfig(name="sgd", lr=0.5, weight_decay=0.0))
    before = [part.data.clone() for part in parts]
    scaler, run = LossScaler(64.0), step.run

    def spoilt(*arguments: object, **more: object) -> torch.Tensor:
        share = run(*arguments, **more)  # type: ignore[arg-type]
        if dist.get_rank() == dist.get_world_size() - 1:
            gradient = next(part.gradient for part in parts if part.gradient is not None and part.gradient.numel())
            gradient.view(-1)[0] = float("inf")
        return share

    step.run = spoilt  # type: ignore[method-assign]
    done = update(step, optimizer, own_batches(step, 2), target_tokens=TARGETS, max_norm=1.0, scaler=scaler)
    return done.skipped, scaler.scale, all(map(torch.equal, before, [part.data for part in parts]))


@pytest.mark.parametrize("layout", ["fsdp2", "tp2", "pp2:1f1b"])
def test_an_infinity_anywhere_leaves_the_step_out_everywhere(ranks: RankPool, layout: str) -> None:
    assert ranks.run(infinite, layout, world=2) == [(True, 32.0, True)] * 2


def without_targets() -> float:
    step = make_step("ddp2")
    batches = own_batches(step, 1)
    ignored = [Batch(b.tokens, torch.full_like(b.targets, IGNORED), b.positions) for b in batches]
    return everyone(step.run(ignored, target_tokens=0), step)


def test_a_step_without_targets_has_no_loss(ranks: RankPool) -> None:
    assert ranks.run(without_targets, world=2) == [0.0, 0.0]
