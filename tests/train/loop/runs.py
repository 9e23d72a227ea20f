"""Runs on ranks of a pool: what `meshwright train` does, without starting processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meshwright.spec.notation import parse_layout
from meshwright.train.checkpoint.boxes import Box
from meshwright.train.checkpoint.metadata import CheckedReader, read_metadata
from meshwright.train.checkpoint.planner import BoxLoadPlanner
from meshwright.train.config.here import Here
from meshwright.train.config.job import Job
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve
from meshwright.train.launch.environment import read_place
from meshwright.train.launch.pool import RankPool
from meshwright.train.loop import run as loop
from meshwright.train.loop.run import Outcome, train_here
from meshwright.train.loop.steps import Steps
from meshwright.train.metrics.jsonl import read_steps

NANO = str(Path(__file__).with_name("nano-llama.json"))
FLAGS = {
    "model": NANO,
    "data.source": "synthetic:chain",
    "train.seq_len": "32",
    "train.global_batch": "8",
    "train.steps": "4",
    "optimizer.lr": "1e-3",
    "checkpoint.every": "0",
    "checkpoint.async": "false",
    "metrics.tensorboard": "false",
}


def job_of(folder: Path | str, layout: str, flags: Mapping[str, str] | None = None) -> Job:
    """The job as each rank resolves it."""
    values = {**FLAGS, **(flags or {}), "layout": layout, "run": str(folder)}
    return resolve(read_config(None, values), Here(read_place()))


def work(folder: str, layout: str, flags: Mapping[str, str], stop_after: int | None = None) -> Outcome:
    """One rank of a run, which is asked to stop in step `stop_after`."""
    whole = Steps._step

    def step(self: Steps) -> Any:
        if self.done + 1 == stop_after and torch.distributed.get_rank() == torch.distributed.get_world_size() - 1:
            self._stop.reason = "SIGTERM"  # on one rank alone
        return whole(self)

    Steps._step = step  # type: ignore[method-assign]
    try:
        return train_here(job_of(folder, layout, flags), torch.device("cpu"))
    finally:
        Steps._step = whole  # type: ignore[method-assign]


def run(
    ranks: RankPool, folder: Path, layout: str, *, stop_after: int | None = None, warns: bool = False, **flags: Any
) -> list[dict[str, Any]]:
    """Run a job to its end; returns the steps in its metrics.jsonl. Flags: `train__steps=3`.

    Nothing may be warned of unless `warns`: what PyTorch or we would tell a person in every run is noise.
    """
    given = {name.replace("__", "."): str(value) for name, value in flags.items()}
    ranks.run(work, str(folder), layout, given, stop_after, world=parse_layout(layout).devices, timeout=180)
    if not warns:
        for log in (folder / "logs").glob("rank-*.log"):
            assert "WARNING" not in log.read_text(), log.read_text()
    return read_steps(folder / "metrics.jsonl")


def losses(steps: list[dict[str, Any]]) -> list[float]:
    """Of each step."""
    return [step["loss"] for step in steps]


def parameters_of_ranks(folder: str, layout: str, flags: Mapping[str, str]) -> tuple[dict[str, Tensor], list[bool]]:
    """One rank of a run: its parts' numbers before the first step and at the end, and which steps it left out."""
    setups, skipped = [], []
    set_up, whole = loop.set_up, Steps._step

    def kept(*arguments: Any) -> Any:
        setups.append(set_up(*arguments))
        return setups[0]

    def step(self: Steps) -> Any:
        measured = whole(self)
        skipped.append(measured.skipped)
        return measured

    loop.set_up, Steps._step = kept, step  # type: ignore[method-assign]
    try:
        train_here(job_of(folder, layout, flags), torch.device("cpu"))
    finally:
        loop.set_up, Steps._step = set_up, whole  # type: ignore[method-assign]
    return {part.name: part.data.clone() for part in setups[0].step.parallel.parts}, skipped


def saved_tensors(checkpoint: Path) -> dict[str, Tensor]:
    """Every tensor of a checkpoint, whole."""
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    metadata, found = read_metadata(checkpoint), {}
    for key, saved in metadata.state_dict_metadata.items():
        assert isinstance(saved, TensorStorageMetadata)
        found[key] = torch.empty(saved.size, dtype=saved.properties.dtype)
    boxes = [Box(key, tuple(tensor.shape), (0,) * tensor.dim(), tensor) for key, tensor in found.items()]
    load({}, storage_reader=CheckedReader(checkpoint, metadata), planner=BoxLoadPlanner(boxes, metadata), no_dist=True)
    return found


def saved_state(checkpoint: Path) -> dict[str, Any]:
    """The run's state in a checkpoint."""
    read: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
    return read
