"""launch_local: all ranks of a run on this machine, when neither torchrun nor Slurm has started them.

Rank 0 writes to the terminal, the others to `logs/rank-0003.log` in the run's folder. Ctrl-C and SIGTERM are passed on
once, so that ranks checkpoint and leave; a second Ctrl-C kills them. A rank that dies takes the others with it within
seconds, and the launcher shows the error of the rank that failed first by itself. Ranks do not outlive the launcher.

Ranks call `record_errors` (their errors), `read_place` (who they are), and use `StopFlag`. Nothing here imports torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from meshwright.spec.errors import RequestError
from meshwright.train.launch.environment import LAUNCHER, LOCALHOST
from meshwright.train.launch.error_files import note_signal, read_errors, remove_errors, write_error
from meshwright.train.launch.failures import Failure, death_of, root_cause
from meshwright.train.launch.orphans import PARENT, parent_death_signal
from meshwright.train.launch.ports import free_port
from meshwright.train.launch.recorder import ask_for_dumps, remove_dumps
from meshwright.train.launch.threads import threads_of_a_rank
from meshwright.train.metrics.logs import log_path

POLL_SECONDS = 0.05
GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL for the peers of a rank that died."""
ECHO_SECONDS = 1.0
"""How long other ranks may take to say that they failed, too, before they are asked to stop."""
LAST_LINES = 20


def python_module(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """The command that runs `module` with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def launch_local(
    command: Sequence[str],
    ranks: int,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    threads: int | None = None,
    grace: float = GRACE_SECONDS,
) -> int:
    """Run `command` once a rank and wait for all; returns the exit code of the job. Call it from the main thread.

    0: every rank ended well. 1: a rank failed; its error is on stderr. 128 + the signal's number: the job was asked to
    stop, and did. Ranks get the variables of torchrun and `environment`; logs and errors are in `folder`/logs.
    `threads` of a rank's CPU operations: None shares the cores with GPUs, and is 1 without. Raises RequestError with
    the message of a rank that failed with one, or when the folder cannot be written.
    """
    try:
        log_path(folder, 0).parent.mkdir(parents=True, exist_ok=True)
        remove_errors(folder)
        remove_dumps(folder)
    except OSError as error:
        raise RequestError(f"Cannot write logs into {folder}: {error.strerror}.") from error
    variables = {**os.environ, **_variables(ranks, threads), **(environment or {})}
    job = _Job(command, ranks, folder, grace)
    with job.signals():
        try:
            job.start(variables)
            job.wait()
        finally:
            job.kill()
    return job.report()


class _Job:
    """The ranks of one launch."""

    def __init__(self, command: Sequence[str], ranks: int, folder: Path, grace: float) -> None:
        self.command = list(command)
        self.ranks = ranks
        self.folder = folder
        self.grace = grace
        self.processes: list[subprocess.Popen[bytes]] = []
        self.deaths: list[Failure] = []
        self.marks = {rank: _size(log_path(folder, rank)) for rank in range(ranks)}
        self.stopped_by: int | None = None
        self._ended: set[int] = set()
        self._interrupts = 0
        self._failed_at: float | None = None
        self._told_at: float | None = None

    @contextmanager
    def signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM only set what `wait` looks at."""

        def note(number: int, frame: FrameType | None) -> None:
            self.stopped_by = self.stopped_by or number
            self._interrupts += number == signal.SIGINT

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, variables: Mapping[str, str]) -> None:
        # Bound in the child, between fork and exec; this process has no other thread that could hold a lock there.
        bound = parent_death_signal(os.getpid())
        for rank in range(self.ranks):
            with ExitStack() as stack:
                # Rank 0 keeps the terminal itself: a progress line needs one.
                log = None if rank == 0 else stack.enter_context(log_path(self.folder, rank).open("ab"))
                process = subprocess.Popen(
                    self.command,
                    env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=bound,
                    # The terminal's Ctrl-C is for the launcher, which passes it on once.
                    start_new_session=True,
                )
            self.processes.append(process)

    def wait(self) -> None:
        """Until all ranks have ended, by themselves or because one failed."""
        alive_at = time.time()
        while True:
            running = [process for process in self.processes if process.poll() is None]
            self._note_deaths(alive_at)
            alive_at = time.time()
            if not running or self._interrupts > 1 or self._is_overdue():
                return
            if self._shall_stop() and self._told_at is None:
                self._told_at = time.monotonic()
                if self.stopped_by is not None:
                    note_signal(self.folder, signal.Signals(self.stopped_by).name)
                for process in running:
                    process.send_signal(signal.SIGTERM)
            time.sleep(POLL_SECONDS)

    def _shall_stop(self) -> bool:
        """Whether it is time to ask the ranks that still run to stop."""
        failures = [*self.deaths, *read_errors(self.folder)]
        if failures and self._failed_at is None:
            self._failed_at = time.monotonic()
            ask_for_dumps(self.folder)
        if self._failed_at is None:
            return self.stopped_by is not None
        # Where a rank only lost a peer, that peer's own error is still to come.
        patience = self.grace if root_cause(failures).is_echo else ECHO_SECONDS
        return time.monotonic() - self._failed_at > patience

    def _is_overdue(self) -> bool:
        """Whether ranks did not stop in time after one failed. Asked by a person they may take as long as they need."""
        if self._failed_at is None or self._told_at is None:
            return False
        return time.monotonic() - max(self._failed_at, self._told_at) > self.grace

    def _note_deaths(self, alive_at: float) -> None:
        """Ranks that have ended badly since `alive_at`, when they were all seen alive."""
        for rank, process in enumerate(self.processes):
            code = process.returncode
            if code is None or rank in self._ended:
                continue
            self._ended.add(rank)
            # A rank that SIGTERM ends had not come to its StopFlag yet.
            if code and not (self._told_at is not None and code == -signal.SIGTERM):
                self.deaths.append(death_of(rank, code, alive_at))

    def kill(self) -> None:
        """End every rank that still runs, with the processes it started."""
        for process in self.processes:
            # Of a rank that died, children may remain.
            if process.poll() != 0:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def report(self) -> int:
        """Say what happened; returns the exit code. Raises RequestError for a rank that said one."""
        errors = read_errors(self.folder)
        told = {failure.rank for failure in errors}
        silent = [death for death in self.deaths if death.rank not in told]
        for death in silent:
            write_error(self.folder, death)  # what a killed rank cannot leave itself
        failures = errors + silent
        if not failures:
            return 128 + self.stopped_by if self.stopped_by else 0
        cause = root_cause(failures)
        if cause.is_request:
            raise RequestError(cause.message)
        print("\n".join(self._lines(cause)), file=sys.stderr, flush=True)
        return 1

    def _lines(self, cause: Failure) -> Iterator[str]:
        from meshwright.train.launch.findings import finding_lines

        log = log_path(self.folder, cause.rank)
        yield from finding_lines(log.parent, cause)
        yield f"error: rank {cause.rank} of {self.ranks} failed: {cause.headline}"
        if cause.traceback:
            yield from cause.message.strip().splitlines()[1:]
            yield f"  at {cause.where}"
            yield f"Traceback: {log}"
        elif cause.rank:
            last = log.read_bytes()[self.marks[cause.rank] :].decode(errors="replace").strip().splitlines()
            yield from (f"  {line}" for line in last[-LAST_LINES:])
            yield f"Its log: {log}"
        if self.ranks > 1:
            yield f"All ranks were stopped. Logs of the others: {log.with_name('rank-*.log')}"


def _variables(ranks: int, threads: int | None) -> dict[str, str]:
    """What every rank finds in its environment, beside RANK and LOCAL_RANK."""
    variables = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": LOCALHOST,
        "MASTER_PORT": str(free_port()),
        "PYTHONUNBUFFERED": "1",
        LAUNCHER: "local",
        PARENT: str(os.getpid()),
    }
    # Set before torch is imported: its pools take their size then.
    if threads is not None or "OMP_NUM_THREADS" not in os.environ:
        count = threads or threads_of_a_rank(ranks, gpu=Path("/dev/nvidia0").exists() or Path("/dev/kfd").exists())
        variables["OMP_NUM_THREADS"] = str(count)
    return variables


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
