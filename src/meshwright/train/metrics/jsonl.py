"""metrics.jsonl: one JSON object a step, whole lines only, also after a crash or a resumed run.

A line is written in one piece. What a crash cut off in the middle of the last line is dropped when the file is opened
again, and so are the steps behind the one that the run resumes from: they will be run and written again.
"""

from __future__ import annotations

import json
import math
import os
from itertools import count
from pathlib import Path
from typing import Any

from meshwright.spec.errors import RequestError
from meshwright.train.config.files import write_atomically
from meshwright.train.metrics.step import StepReport


class JsonlSink:
    """Appends a line a step to `path`."""

    def __init__(self, path: Path, resumed_step: int = 0) -> None:
        """Open the file for the steps after `resumed_step` (0: a new run). Raises RequestError."""
        self.path = path
        _repair(path, resumed_step)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise RequestError(f"Cannot write {path}: {error.strerror}.") from error

    def write(self, report: StepReport) -> None:
        """Append the step's numbers; one that is not finite becomes null, which JSON has. Raises RequestError."""
        line = (json.dumps(finite(report.numbers()), allow_nan=False) + "\n").encode()
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            raise RequestError(f"Cannot write {self.path}: {error.strerror}.") from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_steps(path: Path) -> list[dict[str, Any]]:
    """The steps of a metrics.jsonl, a half-written last line left out. Raises RequestError: a line that is no step."""
    return [step for _, step in _steps(path)]


def finite(numbers: dict[str, Any]) -> dict[str, Any]:
    """The same with None for what is not finite."""
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in numbers.items()}


def _repair(path: Path, resumed_step: int) -> None:
    """Keep the whole lines up to `resumed_step`; a file that is right already is not touched."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return
        if not resumed_step:
            _move_aside(path)
            return
        kept = "".join(line + "\n" for line, step in _steps(path) if step["step"] <= resumed_step)
        if kept.encode() != path.read_bytes():
            write_atomically(path, kept)
    except OSError as error:
        raise RequestError(f"Cannot write {path}: {error.strerror}.") from error


def _move_aside(path: Path) -> None:
    """Rename an older run's file to the first free `metrics.N.jsonl`."""
    if path.stat().st_size:
        free = next(aside for n in count(1) if not (aside := path.with_suffix(f".{n}{path.suffix}")).exists())
        os.replace(path, free)


def _steps(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Each line with its object. The last line may be half of one; any other that is no step was not written by us."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RequestError(f"Cannot read {path}: {error.strerror}.") from error
    found = []
    for number, line in enumerate(lines[:-1], 1):  # behind the last line break is nothing, or half a line
        step = _object(line)
        if step is None and number == len(lines) - 1 and not lines[-1]:
            break  # a crash of the machine can leave a last block of zeros, line break or not
        if step is None:
            raise RequestError(
                f"{path}, line {number}: not a step of a run; move the file away or give the run another folder.",
                ("--run FOLDER",),
            )
        found.append((line.decode(), step))
    return found


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    step = found.get("step") if isinstance(found, dict) else None
    return found if isinstance(step, int) and not isinstance(step, bool) else None
