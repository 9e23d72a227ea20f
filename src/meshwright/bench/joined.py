"""JoinedCrew: cases under torchrun or Slurm, where every rank has a supervisor that starts a fresh process a case.

Each rank that the launcher started stays, runs nothing on a device, and meets the others over gloo. For a case it
starts a child with its own place and a new port; a child that fails, or takes too long, is told to the other
supervisors through the store, and they stop theirs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist

from meshwright.bench.case import Case, rank_path
from meshwright.bench.crew import Outcome, told
from meshwright.bench.result import DONE, FAILED, REFUSED, TIMED_OUT
from meshwright.train.launch.environment import Place
from meshwright.train.launch.error_files import error_path, read_errors
from meshwright.train.launch.failures import death_of, root_cause
from meshwright.train.launch.orphans import PARENT
from meshwright.train.launch.ports import free_port
from meshwright.train.launch.process_group import finalize, initialize
from meshwright.train.metrics.logs import log_path

POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0
STOPPED = "stopped"
"""Because a peer's child failed."""
ELASTIC = "TORCHELASTIC_"
"""Variables of torchrun that a child must not see: it would join torchrun's own store."""


class JoinedCrew:
    """One supervisor. Every rank makes one and calls `run` with the same cases in the same order."""

    def __init__(self, place: Place) -> None:
        self.place = place
        # Supervisors wait for one another as long as a case takes.
        initialize(place, device="cpu", backend="gloo", timeout=7 * 24 * 3600.0)
        self._store = dist.distributed_c10d._get_default_store()
        self._cases = 0

    def run(self, case: Case, ranks: int, folder: Path, timeout: float) -> Outcome:
        """Run `case` on the first `ranks` ranks; every supervisor returns the same Outcome."""
        self._cases += 1
        folder.mkdir(parents=True, exist_ok=True)
        file = case.write(folder, self.place.rank)
        # Of an attempt before this one, which a child that dies early would be blamed with.
        error_path(folder, self.place.rank).unlink(missing_ok=True)
        rank_path(folder, self.place.rank).unlink(missing_ok=True)
        port: list[Any] = [free_port("") if self.place.rank == 0 else None]
        dist.broadcast_object_list(port, src=0)
        status: str | int = 0
        if self.place.rank < ranks:
            status = self._child(file, ranks, int(port[0]), timeout)
        found: list[Any] = [None] * self.place.world_size
        dist.all_gather_object(found, (status, *self._left(file.parent)))
        return _joined(found[:ranks], timeout)

    def agree(self, known: dict[int, Outcome]) -> dict[int, Outcome]:
        """What the first rank knows of runs before this one."""
        box: list[Any] = [known]
        dist.broadcast_object_list(box, src=0)
        return dict(box[0])

    @property
    def first(self) -> bool:
        """Whether this supervisor is the one that writes and talks."""
        return self.place.rank == 0

    def close(self) -> None:
        finalize()

    def _child(self, file: Path, ranks: int, port: int, timeout: float) -> str | int:
        """Run this rank's child to its end; returns its exit code, or why it was stopped."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ELASTIC)}
        environment |= _place(self.place, ranks, port)
        log = log_path(file.parent, self.place.rank)
        log.parent.mkdir(parents=True, exist_ok=True)
        key, deadline, told_at = f"meshwright/failed/{self._cases}", time.monotonic() + timeout, None
        with log.open("ab") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "meshwright.bench.program", str(file)],
                env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                while (code := child.poll()) is None:
                    now = time.monotonic()
                    if told_at is None and self._store.check([key]):
                        told_at = now
                    if now > deadline or (told_at is not None and now > told_at + GRACE_SECONDS):
                        self._store.set(key, "1")
                        return TIMED_OUT if told_at is None else STOPPED
                    time.sleep(POLL_SECONDS)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, 9)
                child.wait()
        if code:
            self._store.set(key, "1")
        return code

    def _left(self, folder: Path) -> tuple[Any, Any]:
        """What the child measured, and the error that it recorded."""
        import json

        measured = None
        with suppress(OSError, ValueError):
            measured = json.loads(rank_path(folder, self.place.rank).read_text(encoding="utf-8"))
        return measured, read_errors(folder)


def _joined(found: list[Any], timeout: float) -> Outcome:
    """The Outcome of a case from every rank's (status, numbers, errors)."""
    statuses = [status for status, _, _ in found]
    if not any(statuses) and all(measured is not None for _, measured, _ in found):
        return Outcome(DONE, ranks=[measured for _, measured, _ in found])
    errors = list({error.rank: error for _, _, some in found for error in some}.values())
    said = {error.rank for error in errors}
    deaths = [death_of(rank, code) for rank, code in enumerate(statuses) if isinstance(code, int) and code]
    failures = errors + [death for death in deaths if death.rank not in said]
    cause = root_cause(failures) if failures else None
    if TIMED_OUT in statuses and (cause is None or cause.is_echo):
        return Outcome(TIMED_OUT, f"still running after {timeout:g} s")
    if cause is None:
        return Outcome(FAILED, "a rank left no numbers")
    return Outcome(REFUSED, cause.message) if cause.is_request else told(cause.headline, cause.message)


def _place(place: Place, ranks: int, port: int) -> dict[str, str]:
    """The variables by which a child finds its place among the first `ranks` ranks."""
    here = min(place.local_world_size, ranks - (place.rank - place.local_rank))
    return {
        "RANK": str(place.rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(here), "GROUP_RANK": str(place.node), "MASTER_ADDR": place.address,
        "MASTER_PORT": str(port), PARENT: str(os.getpid()),
    }  # fmt: skip
