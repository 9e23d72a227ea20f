"""Inputs: what lies in the files that a person points at, told by their content and not by their names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.diagnose.recorder.read import Dump, looks_like_dump, read_dump
from meshwright.diagnose.unpickle import load_plain
from meshwright.spec.errors import RequestError

LARGEST = 256 * 2**20
"""Bytes of a file that is read whole."""
RECORDER, UNKNOWN = "flight recorder dump", "unknown"


@dataclass(frozen=True, slots=True)
class Input:
    """One file."""

    path: str
    kind: str
    rank: int | None = None
    problem: str = ""
    """Why it was not read; "" where it was."""


@dataclass
class Inputs:
    """All that was found."""

    files: list[Input] = field(default_factory=list)
    dumps: list[Dump] = field(default_factory=list)


def read_inputs(paths: Sequence[Path]) -> Inputs:
    """Read every file below `paths`. Raises RequestError: a path that is not there."""
    found = Inputs()
    for path in paths:
        if not path.exists():
            raise RequestError(f"There is no {path}.")
        for file in _files(path):
            _read(file, found)
    return found


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if file.is_file())
    else:
        yield path


def _read(file: Path, found: Inputs) -> None:
    try:
        kind, parsed = _parsed(file)
        if kind != RECORDER:
            found.files.append(Input(str(file), kind, problem="" if kind != UNKNOWN else "not recognised"))
            return
        dump = read_dump(parsed, str(file))
    except (OSError, RequestError) as error:
        found.files.append(Input(str(file), UNKNOWN, problem=str(error)))
        return
    if any(dump.rank == other.rank for other in found.dumps):
        found.files.append(Input(str(file), RECORDER, dump.rank, f"another dump of rank {dump.rank} was read already"))
        return
    found.dumps.append(dump)
    found.files.append(Input(str(file), RECORDER, dump.rank))


def _parsed(file: Path) -> tuple[str, Any]:
    if file.stat().st_size > LARGEST:
        return UNKNOWN, None
    data = file.read_bytes()
    if data[:1] == b"\x80":
        parsed = load_plain(data)
    elif data.lstrip()[:1] == b"{":
        try:
            parsed = json.loads(data)
        except (ValueError, RecursionError):
            return UNKNOWN, None
    else:
        return UNKNOWN, None
    return (RECORDER if looks_like_dump(parsed) else UNKNOWN), parsed
