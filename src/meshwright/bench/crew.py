"""Crews: who runs a case in ranks that have run nothing before, and what comes back when they fail."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from meshwright.bench.case import Case
from meshwright.bench.result import DONE, FAILED, OUT_OF_MEMORY, REFUSED, TIMED_OUT
from meshwright.spec.errors import RequestError
from meshwright.train.launch.pool import RankPool, RankTimeoutError
from meshwright.train.launch.recorder import dump_path

_OUT_OF_MEMORY = re.compile(r"out of (host )?memory|can't allocate memory|cannot allocate memory", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """How one run ended."""

    status: str
    reason: str = ""
    ranks: list[dict[str, Any]] = field(default_factory=list)
    """What each rank measured; empty where it did not come to that."""


class Crew(Protocol):
    """Runs cases one after the other."""

    def run(self, case: Case, ranks: int, folder: Path, timeout: float) -> Outcome:
        """Run `case` on the first `ranks` ranks, with `folder` for what they leave; stops them after `timeout` s."""

    def agree(self, known: dict[int, Outcome]) -> dict[int, Outcome]:
        """The runs that are done already, alike for all who share the work."""

    @property
    def first(self) -> bool:
        """Whether this process writes what comes out, and talks."""

    def close(self) -> None:
        """End what is still there."""


class LocalCrew:
    """Ranks of this machine: forked for each case from a process that has imported PyTorch and done nothing else."""

    def __init__(self, ranks: int, device: str) -> None:
        self._pool = RankPool(ranks, backend="cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
        self._pool.__enter__()
        self._used = False

    def run(self, case: Case, ranks: int, folder: Path, timeout: float) -> Outcome:
        if self._used:
            self._pool.renew()
        self._used = True
        try:
            found = self._pool.run("meshwright.bench.program:run_case", case, str(folder), world=ranks, timeout=timeout)
        except Exception as error:  # whatever it is: the other rows are still worth a run
            keep(error, folder)
            return failure(error)
        return Outcome(DONE, ranks=found)

    def agree(self, known: dict[int, Outcome]) -> dict[int, Outcome]:
        return known

    @property
    def first(self) -> bool:
        return True

    def close(self) -> None:
        self._pool.close()


def keep(error: BaseException, folder: Path) -> None:
    """Leaves the whole error, and the dumps of ranks that did not end, in the logs of the run's folder."""
    logs = dump_path(folder, 0).parent
    with suppress(OSError):
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "error.log").write_text(f"ERROR {type(error).__name__}: {error}\n{error.__cause__ or ''}\n")
        for rank, dump in (error.dumps if isinstance(error, RankTimeoutError) else {}).items():
            dump_path(folder, rank).write_bytes(dump)


def explained(outcome: Outcome, folder: Path) -> Outcome:
    """The outcome of a failed run, its reason led by what the rules of `diagnose` find in the run's logs."""
    if outcome.status in (DONE, REFUSED):
        return outcome
    from meshwright.train.launch.findings import findings_of, stood_still

    logs = dump_path(folder, 0).parent
    found = findings_of(logs, hangs=outcome.status == TIMED_OUT and stood_still(logs))
    return replace(outcome, reason=f"{found[0].cause} ({outcome.reason})") if found else outcome


def failure(error: BaseException) -> Outcome:
    """The Outcome of a run that raised: its status, and the first line of its own error."""
    if isinstance(error, RankTimeoutError):
        return Outcome(TIMED_OUT, str(error).splitlines()[0])
    if isinstance(error, RequestError):
        return Outcome(REFUSED, str(error))
    return told(f"{type(error).__name__}: {error}", str(error.__cause__ or ""))


def told(message: str, more: str = "") -> Outcome:
    """The Outcome of a run that failed with this message."""
    first = message.strip().splitlines()[0][:500] if message.strip() else "no message"
    status = OUT_OF_MEMORY if _OUT_OF_MEMORY.search(message) or _OUT_OF_MEMORY.search(more[:2000]) else FAILED
    return Outcome(status, first)
