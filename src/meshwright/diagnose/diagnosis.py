"""A diagnosis: what was read, what is wrong, what was checked and what was missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.diagnose.finding import Finding
from meshwright.diagnose.inputs import Input, Inputs, read_inputs
from meshwright.diagnose.recorder.rule import find_hangs
from meshwright.diagnose.recorder.waits import members
from meshwright.spec.errors import RequestError


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer about one job."""

    inputs: tuple[Input, ...]
    findings: tuple[Finding, ...]
    """The most important first."""
    checked: tuple[str, ...]
    missing: tuple[str, ...]


def diagnose(paths: Sequence[Path]) -> Diagnosis:
    """What is wrong with the job that left these files. Raises RequestError: nothing in them can be read."""
    found = read_inputs(paths)
    if not found.dumps:
        told = "; ".join(f"{one.path}: {one.problem}" for one in found.files[:3])
        raise RequestError(
            f"Nothing here can be read{f' ({told})' if told else ''}.", ["dumps of the Flight Recorder, pickle or JSON"]
        )
    return Diagnosis(tuple(found.files), tuple(find_hangs(found.dumps)), _checked(found), _missing(found))


def _checked(found: Inputs) -> tuple[str, ...]:
    ranks, entries = len(found.dumps), sum(len(dump.entries) for dump in found.dumps)
    return (
        f"{ranks} dumps, {entries:,} collectives and messages, {len(members(found.dumps)):,} groups: operations, sizes "
        "and dtypes of the same collective; who waits for whom",
    )


def _missing(found: Inputs) -> tuple[str, ...]:
    """Ranks that belong to a group and left no dump."""
    there = {dump.rank for dump in found.dumps}
    absent = sorted({rank for ranks in members(found.dumps).values() for rank in ranks} - there)
    return (f"dumps of ranks {', '.join(map(str, absent[:16]))}",) if absent else ()
