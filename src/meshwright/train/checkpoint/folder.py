"""Folder: a run's checkpoints on the disk, as `step-00000100/`; what is being written is hidden and has another name.

A checkpoint gets its name by one rename when all of it is on the disk, so a folder of that name is whole unless
somebody or the disk damaged it later.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.checkpoint.files import sync_directory
from meshwright.train.checkpoint.manifest import Manifest, find_damage, read_manifest

logger = logging.getLogger(__name__)

NAME = re.compile(r"step-\d{8,}(-\d+)?")
UNFINISHED = re.compile(r"\.step-\d{8,}(-\d+)?\.tmp-[0-9a-f]+")


@dataclass(frozen=True)
class Found:
    """A folder with a checkpoint's name."""

    path: Path
    manifest: Manifest | None
    damage: str | None
    """Why it cannot be loaded, as far as names and sizes tell; None: it is whole."""


def find_checkpoints(directory: Path) -> list[Found]:
    """All checkpoints in `directory`, the newest (last saved) first, those without a readable manifest last."""
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        if NAME.fullmatch(path.name):
            try:
                manifest = read_manifest(path)
                found.append(Found(path, manifest, find_damage(path, manifest)))
            except CheckpointError as error:
                found.append(Found(path, None, str(error)))
    return sorted(found, key=_age)


def _age(found: Found) -> tuple[int, int, str]:
    if found.manifest is None:
        return 1, 0, found.path.name
    return -found.manifest.sequence, -found.manifest.step, found.path.name


def whole_checkpoints(directory: Path) -> list[Path]:
    """Checkpoints that are whole by the names and sizes of their files, the newest first.

    Damaged ones that would come before them all are warned of. Raises CheckpointError when there are checkpoints and
    all are damaged: starting anew would hide that.
    """
    found = find_checkpoints(directory)
    for checkpoint in found:
        if checkpoint.damage is None:
            break
        logger.warning("%s It is passed over.", checkpoint.damage)
    whole = [checkpoint.path for checkpoint in found if checkpoint.damage is None]
    if found and not whole:
        raise none_is_whole(directory, found[0].damage)
    return whole


def none_is_whole(directory: Path, damage: object) -> CheckpointError:
    """The refusal to start anew beside checkpoints of which none can be loaded."""
    return CheckpointError(
        f"No checkpoint in {directory} is whole. {damage} Repair it, or move the folder away to start anew."
    )


@dataclass(frozen=True)
class Ticket:
    """Where one save goes."""

    temporary: Path
    final: Path
    step: int
    sequence: int


def open_ticket(directory: Path, step: int, needed: int) -> Ticket:
    """Make the hidden folder for a save of `needed` bytes, after removing what crashed saves left.

    Raises CheckpointError when the folder cannot be made or the disk has no room.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.iterdir():
            if UNFINISHED.fullmatch(path.name):
                shutil.rmtree(path)
        free = shutil.disk_usage(directory).free
        if free < needed:
            raise CheckpointError(
                f"No room for a checkpoint of step {step}: it needs {_size(needed)}, "
                f"{directory} has {_size(free)} free. Earlier checkpoints are untouched."
            )
        name, attempt = f"step-{step:08d}", 1
        # A folder of this step may be there from before the run went back: it stays until the new one is whole.
        while (directory / name).exists():
            attempt += 1
            name = f"step-{step:08d}-{attempt}"
        temporary = directory / f".{name}.tmp-{uuid.uuid4().hex}"
        temporary.mkdir()
    except OSError as error:
        raise CheckpointError(f"Cannot write checkpoints to {directory}: {error.strerror}.") from error
    known = [c.manifest.sequence for c in find_checkpoints(directory) if c.manifest is not None]
    return Ticket(temporary, directory / name, step, max(known, default=0) + 1)


def publish(ticket: Ticket, keep: int) -> None:
    """Give a complete save its name, then remove those beyond the newest `keep` and older ones of its step."""
    sync_directory(ticket.temporary)
    os.rename(ticket.temporary, ticket.final)
    sync_directory(ticket.final.parent)
    try:
        _prune(ticket, keep)
    except OSError as error:
        logger.warning("Old checkpoints could not be removed: %s", error)


def _prune(ticket: Ticket, keep: int) -> None:
    kept = 0
    for checkpoint in find_checkpoints(ticket.final.parent):
        if checkpoint.manifest is None:
            continue  # not known to be ours
        superseded = checkpoint.manifest.step == ticket.step and checkpoint.path != ticket.final
        if kept < keep and not superseded:
            kept += checkpoint.damage is None
        else:
            remove(checkpoint.path)


def remove(path: Path) -> None:
    """Remove a checkpoint; a crash in the middle leaves no folder that looks like one."""
    hidden = path.with_name(f".{path.name}.tmp-{uuid.uuid4().hex}")
    os.rename(path, hidden)
    shutil.rmtree(hidden)


def _size(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
