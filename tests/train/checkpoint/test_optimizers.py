"""A run that stops, changes its layout and goes on makes the same steps as one that never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshwright.train.checkpoint import CheckpointStore, TrainState
from meshwright.train.launch.pool import RankPool
from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.optimizer import make_optimizer

from .cut_parts import SHAPES, held

Boxes = list[tuple[str, tuple[int, ...], torch.Tensor]]


def gradient(name: str, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + list(SHAPES).index(name))
    return torch.randn(SHAPES[name], generator=generator, dtype=torch.float64)


def train(folder: Path, cut: str, optimizer_name: str, first: int, last: int) -> Boxes:
    """Steps `first` to `last`, from the latest checkpoint if there is one, and save; the parameters at the end."""
    parts = held(cut, fill=True).parts
    optimizer = make_optimizer(parts, OptimConfig(name=optimizer_name, lr=0.1))
    with CheckpointStore(folder) as store:
        path = store.latest()
        if path is not None:
            assert store.load(path, parts, optimizer.state_parts()).step == first - 1
            optimizer.loaded()
        for step in range(first, last + 1):
            for part in parts:
                where = tuple(slice(o, o + n) for o, n in zip(part.offset, part.size, strict=True))
                part.parameter.grad = gradient(part.name, step)[where].clone()
            optimizer.step()
        store.save(TrainState(step=last), parts, optimizer.state_parts())
        return [(part.name, part.offset, part.data.clone()) for part in parts]


def joined(ranks: list[Boxes]) -> dict[str, torch.Tensor]:
    """Whole parameters from the ranks' boxes."""
    out = {name: torch.full(shape, float("nan"), dtype=torch.float64) for name, shape in SHAPES.items()}
    for boxes in ranks:
        for name, offset, box in boxes:
            out[name][tuple(slice(o, o + n) for o, n in zip(offset, box.shape, strict=True))] = box
    return out


@pytest.mark.parametrize("name", ["adamw", "sgd", "adafactor", "lamb", "muon"])
def test_a_run_goes_on_under_another_layout_as_if_it_had_not_stopped(
    ranks: RankPool, tmp_path: Path, name: str
) -> None:
    straight = joined(ranks.run(train, tmp_path / "straight", "whole", name, 1, 4, world=1))
    ranks.run(train, tmp_path / "resumed", "grid", name, 1, 2, world=4)
    ranks.run(train, tmp_path / "resumed", "rows", name, 3, 3, world=3)
    resumed = joined(ranks.run(train, tmp_path / "resumed", "columns", name, 4, 4, world=2))
    for key, parameter in straight.items():
        # Norms are summed in another order; a state that was lost would change the step by more than a thousandth.
        torch.testing.assert_close(resumed[key], parameter, rtol=1e-10, atol=1e-10)
