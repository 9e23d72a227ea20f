"""TrainState: all of a training run that is not a tensor of the model or the optimizer. Plain JSON, never pickled."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from meshwright.train.checkpoint.errors import CheckpointError

Json = dict[str, Any]


@dataclass(frozen=True)
class TrainState:
    """Where a run is. All but `random` is the same on every rank and under every layout. Tensors are saved as boxes."""

    step: int = 0
    """Optimizer steps done."""
    samples: int = 0
    """Sequences consumed, over all ranks."""
    tokens: int = 0
    """Target tokens consumed, over all ranks."""
    seed: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    """The data's own position (epoch, index, …), in samples of the global order."""
    schedule: Mapping[str, Any] = field(default_factory=dict)
    loss_scale: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """The resolved configuration of the run."""
    random: Mapping[str, str] = field(default_factory=dict)
    """This rank's random generators (see `random_state`). Loaded only under the layout that saved it; else empty."""


def state_json(state: TrainState) -> str:
    """The state without `random` as JSON, which `read_state` turns back into an equal state.

    Raises CheckpointError for a value that JSON cannot hold exactly.
    """
    values = asdict(state)
    del values["random"]
    for name, value in values.items():
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"The state's {name} cannot be saved as JSON: {error}.") from error
        if not _same(json.loads(text), value):
            raise CheckpointError(f"The state's {name} would not come back from JSON as it is: keys must be text.")
    return json.dumps(values, indent=1)


def _same(back: Any, value: Any) -> bool:
    """Equal, tuples counting as lists."""
    if isinstance(value, Mapping):
        return isinstance(back, dict) and back.keys() == value.keys() and all(_same(back[k], value[k]) for k in value)
    if isinstance(value, list | tuple):
        return isinstance(back, list) and len(back) == len(value) and all(map(_same, back, value))
    return type(back) is type(value) and bool(back == value)


def read_state(text: str, random: Mapping[str, str]) -> TrainState:
    """The TrainState that `state_json` wrote. Raises CheckpointError for anything else."""
    try:
        values = json.loads(text)
        names = {f.name for f in fields(TrainState)} - {"random"}
        if not isinstance(values, dict) or set(values) != names:
            raise ValueError(f"it needs exactly {', '.join(sorted(names))}")
        for name, default in asdict(TrainState()).items():
            if name in names and type(values[name]) is not type(default):
                raise ValueError(f"{name} is {values[name]!r}")
    except ValueError as error:
        raise CheckpointError(f"The checkpoint's state is damaged: {error}.") from error
    return TrainState(**values, random=random)


def random_state(device: torch.device | None = None) -> dict[str, str]:
    """The states of this process's generators: PyTorch's on the CPU, and on `device` if it is another."""
    states = {"cpu": torch.get_rng_state()}
    if device is not None and device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state(device)
    return {name: base64.b64encode(bytes(state.tolist())).decode() for name, state in states.items()}


def restore_random(state: TrainState, stream: int = 0, device: torch.device | None = None) -> None:
    """Set this process's generators as they were, or, if the state has none, by (seed, step, `stream`).

    Ranks that must draw alike (of one tensor group, say) give the same `stream`, others another one.
    """
    if not state.random:
        digest = hashlib.sha256(f"{state.seed}/{state.step}/{stream}".encode()).digest()
        torch.manual_seed(int.from_bytes(digest[:8], "little"))
        return
    for name, text in state.random.items():
        try:
            numbers = torch.tensor(list(base64.b64decode(text, validate=True)), dtype=torch.uint8)
            if name == "cpu":
                torch.set_rng_state(numbers)
            elif device is not None and device.type == name:
                torch.get_device_module(device).set_rng_state(numbers, device)
        except (ValueError, RuntimeError, TypeError) as error:
            raise CheckpointError(f"The checkpoint's random state of {name!r} is damaged: {error}.") from error
