"""Loading: a checkpoint into boxes of any layout, after everything that can be known to be wrong has been looked at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from meshwright.modes.parts import Part
from meshwright.train.checkpoint.architecture import FREE, flat
from meshwright.train.checkpoint.boxes import OPTIMIZER, StateBox, part_boxes, person_name, state_boxes
from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.checkpoint.manifest import RANDOM_FILE, STATE_FILE, Manifest, read_manifest, verify
from meshwright.train.checkpoint.metadata import CheckedReader, read_metadata
from meshwright.train.checkpoint.planner import BoxLoadPlanner
from meshwright.train.checkpoint.ranks import Ranks, describe
from meshwright.train.checkpoint.state import TrainState, read_state

NAMED = 5
"""Differences that a message names."""

Wanted = dict[str, tuple[tuple[int, ...], str]]
"""Whole shape and dtype by key."""


def load_checkpoint(
    path: Path,
    parts: Sequence[Part],
    states: Iterable[StateBox] = (),
    *,
    ranks: Ranks,
    layout: str = "",
    model: Mapping[str, Any] | None = None,
    weights_only: bool = False,
    cast: bool = False,
    verified: bool = False,
) -> TrainState:
    """Read the checkpoint at `path` into the parts and optimizer states, and give the run's state. Collective.

    `weights_only` leaves the optimizer as it is; `cast` allows the saved numbers to have another dtype. `model` is
    compared with the checkpoint's; `verified`: its bytes were looked at before. Raises CheckpointError, before anything
    is overwritten, when the checkpoint is missing, damaged or of another model.
    """
    boxes = [*part_boxes(parts), *(() if weights_only else state_boxes(states))]
    manifest = ranks.agree(lambda: read_manifest(path))
    if not verified:
        verify(path, manifest, ranks)
    metadata = ranks.agree(lambda: read_metadata(path))
    state = ranks.agree(lambda: _read_state(path, manifest, ranks, layout))
    ranks.agree(lambda: _compare_models(path, manifest, model or {}))
    wanted = {box.key: (box.shape, str(box.tensor.dtype)) for box in boxes}
    gathered = ranks.gather(wanted)
    ranks.decide(lambda: compare(path, gathered, metadata, weights_only, cast))
    planner = ranks.agree(lambda: BoxLoadPlanner(boxes, metadata))
    try:
        load(
            {},
            storage_reader=CheckedReader(path, metadata),
            planner=planner,
            process_group=ranks.group,
            no_dist=ranks.group is None,
        )
    except (Exception, CheckpointException) as error:
        raise CheckpointError(
            f"{path} could not be read: {describe(error)}. The model in memory is partly overwritten."
        ) from error
    return state


def _read_state(path: Path, manifest: Manifest, ranks: Ranks, layout: str) -> TrainState:
    random: dict[str, str] = {}
    if (manifest.layout, manifest.world_size) == (layout, ranks.world):
        try:
            random = json.loads((path / RANDOM_FILE).read_bytes())[ranks.rank]
        except (OSError, ValueError, IndexError) as error:
            raise CheckpointError(f"{path / RANDOM_FILE} is damaged: {error}.") from error
    try:
        text = (path / STATE_FILE).read_text()
    except OSError as error:
        raise CheckpointError(f"{path / STATE_FILE} cannot be read: {error.strerror}.") from error
    return read_state(text, random)


def _compare_models(path: Path, manifest: Manifest, model: Mapping[str, Any]) -> None:
    """Raises CheckpointError when both sides tell of their model and tell different things."""
    if not model or not manifest.model:
        return
    here, there = flat(json.loads(json.dumps(dict(model)))), flat(manifest.model)
    names = [name for name in sorted({*here, *there} - FREE) if here.get(name) != there.get(name)]
    if names:
        said = [f"{name} is {here.get(name)!r} here and {there.get(name)!r} there" for name in names]
        raise CheckpointError(f"{path} is of another model: {_some(said)}.")


def compare(path: Path, every: Sequence[Wanted], metadata: Metadata, weights_only: bool, cast: bool) -> None:
    """Raises CheckpointError unless the ranks want together exactly the tensors that the checkpoint holds."""
    saved = {
        key: (tuple(tensor.size), str(tensor.properties.dtype))
        for key, tensor in metadata.state_dict_metadata.items()
        if isinstance(tensor, TensorStorageMetadata) and not (weights_only and key.startswith(OPTIMIZER))
    }
    differences = []
    seen: Wanted = {}
    for wanted in every:
        for key, kind in wanted.items():
            if seen.setdefault(key, kind) != kind:
                differences.append(f"{person_name(key)} differs between ranks")
    for key, (shape, dtype) in seen.items():
        if key not in saved:
            if 0 not in shape:
                differences.append(f"{person_name(key)} {list(shape)} is not in the checkpoint")
        elif saved[key][0] != shape:
            differences.append(f"{person_name(key)} is {list(shape)} here and {list(saved[key][0])} in the checkpoint")
        elif saved[key][1] != dtype and not cast:
            differences.append(f"{person_name(key)} is {dtype} here and {saved[key][1]} in the checkpoint")
    differences += [
        f"{person_name(key)} {list(shape)} is in the checkpoint only"
        for key, (shape, _) in saved.items()
        if key not in seen
    ]
    if differences:
        differences.sort(key=lambda said: "(optimizer's " in said)
        raise CheckpointError(f"{path} does not fit this run: {_some(differences)}.")


def _some(said: Sequence[str]) -> str:
    more = len(said) - NAMED
    return "; ".join(said[:NAMED]) + (f"; and {more} more" if more > 0 else "")
