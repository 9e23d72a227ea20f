"""Where a run starts from: its own newest checkpoint, weights that were asked for, or fresh numbers."""

from __future__ import annotations

from pathlib import Path

import torch

from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.checkpoint.folder import find_checkpoints
from meshwright.train.checkpoint.manifest import MANIFEST_FILE
from meshwright.train.checkpoint.state import TrainState, random_state, restore_random
from meshwright.train.config.toml_file import to_table
from meshwright.train.loop.setup import Setup
from meshwright.train.models.safetensors_read import Weights


def start_weights(setup: Setup, newest: Path | None) -> None:
    """Before there is an optimizer: the weights that `checkpoint.load` names, where the run has no checkpoint yet.

    Raises CheckpointError and WeightsError, before any parameter is overwritten.
    """
    named = setup.job.config.checkpoint.load
    if newest is None and named:
        _load_weights(setup, Path(named))


def resume(setup: Setup, newest: Path | None) -> TrainState:
    """Everything as the checkpoint `newest` has it; a state of step 0 where there is none.

    Raises CheckpointError and DataError, before anything of the run is overwritten.
    """
    if newest is None:
        return TrainState(seed=setup.job.config.seed)
    state = setup.store.load(newest, setup.kept, setup.optimizer.state_parts())
    setup.optimizer.loaded()
    setup.loader.load_state_dict(dict(state.data))
    if setup.scaler is not None and state.loss_scale:
        setup.scaler.load_state_dict(state.loss_scale)
    restore_random(state, torch.distributed.get_rank(), setup.device)
    return state


def _load_weights(setup: Setup, path: Path) -> None:
    parts = setup.kept
    if (path / MANIFEST_FILE).is_file():
        setup.store.load(path, parts, weights_only=True, cast=True)
        return
    if inside := find_checkpoints(path):
        raise CheckpointError(f"checkpoint.load is {path}, a folder of checkpoints.", [str(one.path) for one in inside])
    weights = Weights(path, setup.architecture)
    for part in parts:
        if 0 not in part.size:
            weights.fill(part.name, part.offset, part.size, part.data)


def state_of(setup: Setup, step: int) -> TrainState:
    """The run's state after `step` steps, for a checkpoint."""
    return TrainState(
        step=step,
        samples=setup.loader.consumed,
        tokens=setup.tokens,
        seed=setup.job.config.seed,
        data=setup.loader.state_dict(),
        schedule={"peak_lr": setup.peak_lr, "total_steps": setup.job.config.train.steps},
        loss_scale=setup.scaler.state_dict() if setup.scaler else {},
        config=to_table(setup.job.config),
        random=random_state(setup.device),
    )
