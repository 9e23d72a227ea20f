"""Case: one run of one layout, as a file that its ranks read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meshwright.train.config.files import write_atomically


@dataclass(frozen=True, slots=True)
class Case:
    """What the ranks of one run are told."""

    flags: Mapping[str, str]
    """Of `meshwright train`, by dotted path."""
    steps: int
    """Timed, with no profiler on."""
    warm_up: int
    """Before them; the first two have their memory measured."""
    traced: int
    """After them; 0: no trace."""

    def write(self, folder: Path, rank: int) -> Path:
        """Save it for one rank in `folder`; returns the file."""
        path = folder / f"case-{rank:05d}.json"
        write_json(path, asdict(self))
        return path


def read_case(path: Path) -> Case:
    """The Case in a file that `Case.write` wrote."""
    return Case(**json.loads(path.read_text(encoding="utf-8")))


def rank_path(folder: Path, rank: int) -> Path:
    """Where a rank leaves what it measured."""
    return folder / f"rank-{rank:05d}.json"


def trace_path(folder: Path, rank: int) -> Path:
    """Where a rank leaves its trace."""
    return folder / f"trace-{rank:05d}.json.gz"


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_atomically(path, json.dumps(document))
