"""Checkpoints of real models under the real modes, changed from layout to layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshwright.modes.mesh import make_mesh
from meshwright.modes.parts import Part
from meshwright.spec.notation import parse_layout
from meshwright.train.assemble import assemble
from meshwright.train.checkpoint import CheckpointStore, TrainState, architecture_json
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import load_architecture
from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.optimizer import StatePart, make_optimizer

SAVED, OTHER = 1, 2
"""Seeds of the weights that are saved, and of those that are loaded over."""


def parts_and_states(model: str, layout: str, seed: int) -> tuple[list[Part], list[StatePart]]:
    mesh = make_mesh(parse_layout(layout))
    step = assemble(load_architecture(model), mesh, dtype=torch.float64, seed=seed)
    parts = step.parallel.parts
    return parts, make_optimizer(parts, OptimConfig(name="adamw")).state_parts()


def state_numbers(state: StatePart) -> torch.Tensor:
    """What a state's box holds: its numbers' places in the whole, so that a wrong box is noticed."""
    whole = torch.arange(torch.Size(state.shape).numel(), dtype=torch.float64).view(state.shape)
    return whole[tuple(slice(o, o + n) for o, n in zip(state.offset, state.size, strict=True))] + len(state.state)


def save(folder: Path, model: str, layout: str) -> None:
    parts, states = parts_and_states(model, layout, SAVED)
    for state in states:
        state.tensor.copy_(state_numbers(state))
    with CheckpointStore(folder, layout=layout, model=architecture_json(load_architecture(model))) as store:
        store.save(TrainState(step=1), parts, states)


def load(folder: Path, model: str, layout: str) -> list[str]:
    """Names of the parameters and states that do not come back exactly."""
    parts, states = parts_and_states(model, layout, OTHER)
    expected = [part.data.clone() for part in parts_and_states(model, layout, SAVED)[0]]
    store = CheckpointStore(folder, layout=layout, model=architecture_json(load_architecture(model)))
    store.load(folder / "step-00000001", parts, states)
    wrong = [part.name for part, data in zip(parts, expected, strict=True) if not torch.equal(part.data, data)]
    return wrong + [s.key for s in states if not torch.equal(s.tensor.double(), state_numbers(s))]


@pytest.mark.parametrize(
    ("model", "saved", "loaded"),
    [
        ("tiny-llama", "fsdp2 tp2", ("pp2:1f1b zero1:2", "hsdp2x2")),
        ("tiny-gpt2", "pp2:1f1b tp2", ("fsdp4", "pp4:1f1b")),
        ("tiny-mixtral", "fsdp4 ep2", ("tp2", "pp2:1f1b ep2 zero2:2")),
    ],
)
def test_a_model_changes_its_layout(
    ranks: RankPool, tmp_path: Path, model: str, saved: str, loaded: tuple[str, ...]
) -> None:
    ranks.run(save, tmp_path, model, saved, world=parse_layout(saved).devices)
    for layout in loaded:
        world = parse_layout(layout).devices
        assert ranks.run(load, tmp_path, model, layout, world=world) == [[]] * world
