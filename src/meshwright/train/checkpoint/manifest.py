"""Manifest: what a checkpoint is and of which files it consists. A folder that has them all is a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.checkpoint.files import FileFacts, checksum
from meshwright.train.checkpoint.ranks import Ranks

MANIFEST_FILE = "manifest.json"
STATE_FILE = "state.json"
RANDOM_FILE = "random.json"
FORMAT = 1
"""Raised when an older reader would misread what is written."""


@dataclass(frozen=True)
class Manifest:
    """One checkpoint's facts."""

    format: int
    step: int
    sequence: int
    """Counts the saves in a folder: the newest checkpoint is the last saved, also after going back to an older step."""
    layout: str
    world_size: int
    model: Mapping[str, Any]
    """The architecture's numbers, to tell another model by."""
    meshwright: str
    torch: str
    saved_at: str
    """UTC, ISO 8601."""
    files: Mapping[str, FileFacts]

    def to_json(self) -> str:
        """As `read_manifest` reads it."""
        return json.dumps(asdict(self), indent=1)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the checkpoint in `directory`. Raises CheckpointError when it is missing or damaged."""
    path = directory / MANIFEST_FILE
    if not directory.is_dir():
        raise CheckpointError(f"There is no checkpoint {directory}.")
    try:
        values = json.loads(path.read_bytes())
        return _manifest(values)
    except FileNotFoundError:
        raise CheckpointError(f"{directory} is no checkpoint: it has no {MANIFEST_FILE}.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error


def _manifest(values: Any) -> Manifest:
    names = {f.name for f in fields(Manifest)}
    if not isinstance(values, dict):
        raise ValueError("it holds no table")
    if isinstance(found := values.get("format"), int) and found > FORMAT:
        raise ValueError(f"format {found} was written by a newer meshwright; this one reads up to {FORMAT}")
    if set(values) != names:
        raise ValueError(f"it needs exactly {', '.join(sorted(names))}")
    for name in ("format", "step", "sequence", "world_size"):
        if type(values[name]) is not int or values[name] < 0:
            raise ValueError(f"{name} is {values[name]!r}")
    files = {}
    for name, facts in values["files"].items():
        if Path(name).name != name or type(facts["size"]) is not int or type(facts["crc32"]) is not int:
            raise ValueError(f"file {name!r}")
        files[name] = FileFacts(facts["size"], facts["crc32"])
    return Manifest(**(values | {"files": files}))


def find_damage(directory: Path, manifest: Manifest) -> str | None:
    """What is wrong with the checkpoint's files by their names and sizes, or None. Reads none of them."""
    for name, facts in manifest.files.items():
        try:
            size = (directory / name).stat().st_size
        except OSError:
            return f"{directory} is damaged: {name} is missing."
        if size != facts.size:
            return f"{directory} is damaged: {name} has {size:,} bytes and was written with {facts.size:,}."
    return None


def verify(directory: Path, manifest: Manifest, ranks: Ranks) -> None:
    """Raises CheckpointError unless every file has its size and checksum. The ranks share the reading. Collective."""

    def check_sizes() -> None:
        if damage := find_damage(directory, manifest):
            raise CheckpointError(damage)

    def check_sums() -> None:
        for name in sorted(manifest.files)[ranks.rank :: ranks.world]:
            if checksum(directory / name) != manifest.files[name].crc32:
                raise CheckpointError(f"{directory} is damaged: {name} holds other bytes than were written.")

    ranks.agree(check_sizes)
    ranks.agree(check_sums)
