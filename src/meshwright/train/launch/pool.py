"""RankPool: ranks that are started once and run many small distributed programs, for tests and for `check`.

    with RankPool(4) as ranks:
        results = ranks.run(work, 3, world=2, scale=0.5)     # [result of rank 0, result of rank 1]

`work` is a top-level function: of the package, of any importable module, or of a test file. It is called on `world`
ranks with the same arguments, inside a process group of exactly these ranks:

    def work(n, scale):
        x = torch.full((n,), scale * dist.get_rank())
        dist.all_reduce(x)
        return x

    def test_all_reduce_sums(ranks):            # the fixtures `ranks` (4) and `ranks8` are in tests/conftest.py
        for x in ranks.run(work, 3, world=2, scale=0.5):
            assert x.tolist() == [0.5] * 3

- Arguments and results travel by pickle: plain tensors, dataclasses, numbers (no DTensor, no closure, no lambda).
- Every task starts with a new process group, seed 0 everywhere, RANK, WORLD_SIZE, LOCAL_RANK, … set, and float32 as
  the default; groups, environment, signal handlers and defaults are put back afterwards, also after an error.
- What a rank raises is raised here with its own type (`pytest.raises(ValueError)` works), caused by a RankError that
  holds the rank's traceback and output. With several failures, it is that of the rank that failed by itself.
- A rank that dies raises RankError with its exit code or signal, at once.
- After `timeout` seconds RankTimeoutError says where each rank stands (its Python stack), and the last collectives
  it began, by `meshwright.modes.record` (which notes them all the while: some ten microseconds each).
- After a death, a timeout, or an error whose peers still wait, all ranks are started anew, in well under a second:
  torch is imported by one process, from which ranks are forked.
- What ranks print is shown with a failure, and is in `pool.folder` until the pool is closed.

One pool runs one task at a time. Under pytest-xdist each worker has its own pool.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any

from meshwright.train.launch.failures import Failure, death_of, root_cause
from meshwright.train.launch.pool_processes import PoolProcesses
from meshwright.train.launch.pool_task import Reference, Task

PEERS_SECONDS = 3.0
"""How long the peers of a failed rank may take to fail or finish before they are stopped."""
CLEAN_SECONDS = 10.0


class RankError(RuntimeError):
    """A rank died, or (as the cause of what it raised) failed."""


class RankTimeoutError(RankError):
    """A task took too long. `dumps` holds the Flight Recorder's of the ranks that still ran."""

    def __init__(self, message: str, dumps: Mapping[int, bytes] | None = None) -> None:
        super().__init__(message)
        self.dumps = dict(dumps or {})


class RankPool:
    """`size` ranks of this machine, each with `threads` threads. Use as a context manager."""

    def __init__(self, size: int, *, backend: str = "gloo", threads: int = 1) -> None:
        self.size = size
        self.backend = backend
        self.threads = threads
        self.folder = Path(tempfile.mkdtemp(prefix="meshwright-ranks-"))
        """Per-rank output."""
        self._processes: PoolProcesses | None = None
        self._tasks = 0

    def __enter__(self) -> RankPool:
        self._processes = PoolProcesses(self.size, self.folder, self.threads)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def renew(self) -> None:
        """Have the next task start in ranks that have run nothing yet."""
        if self._processes is not None:
            self._processes.restart()

    def close(self) -> None:
        """End the ranks and delete their output."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(
        self, fn: Callable[..., Any] | str, *args: Any, world: int | None = None, timeout: float = 60.0, **kwargs: Any
    ) -> list[Any]:
        """Call `fn(*args, **kwargs)` on `world` ranks (None: all); returns the result of each rank.

        `fn` is a top-level function or "module:name". Raises what the first failing rank raised, RankError, or
        RankTimeoutError after `timeout` seconds; TypeError for a function that ranks cannot find, ValueError for a
        world that is too large.
        """
        world = self.size if world is None else world
        if not 1 <= world <= self.size:
            raise ValueError(f"world={world}: this pool has {self.size} ranks")
        if self._processes is None:
            raise RuntimeError("this pool is closed: use it in a with statement")
        reference = reference_to(fn)
        arguments = pickle.dumps((args, kwargs))
        self._tasks += 1
        path = [entry or os.getcwd() for entry in sys.path]
        run = _Run(self._processes, world, timeout)
        try:
            for rank in range(world):
                task = Task(
                    self._tasks, reference, arguments, path, rank, world, self.backend, self.threads, run.port, timeout
                )
                run.start(rank, task)
            return run.results()
        except BaseException:
            if run.unclean:
                self._processes.restart()
            raise


class _Run:
    """One task on its way."""

    def __init__(self, processes: PoolProcesses, world: int, timeout: float) -> None:
        self.processes = processes
        self.world = world
        self.timeout = timeout
        self.values: dict[int, Any] = {}
        self.failures: list[Failure] = []
        self.originals: dict[int, bytes | None] = {}
        self.dead: set[int] = set()
        self.unclean = True
        self.port = processes.ready()
        self.marks = [processes.output_size(rank) for rank in range(world)]

    def start(self, rank: int, task: Task) -> None:
        try:
            self.processes.pipes[rank].send(task)
        except OSError:
            self._died(rank)

    def results(self) -> list[Any]:
        """Wait for all ranks; returns their results or raises."""
        self._collect(time.monotonic() + self.timeout)
        waiting = self._waiting()
        stacks = {rank: self.processes.stacks(rank) for rank in waiting} if waiting else {}
        self.unclean = bool(waiting) or not self._clean()
        if self.failures:
            raise self._error(stacks)
        if waiting:
            dumps = {rank: dump for rank in waiting if (dump := self.processes.dump(rank))}
            raise RankTimeoutError(self._late(stacks), dumps)
        return [self.values[rank] for rank in range(self.world)]

    def _waiting(self) -> list[int]:
        failed = {failure.rank for failure in self.failures}
        return [rank for rank in range(self.world) if rank not in self.values and rank not in failed]

    def _collect(self, deadline: float) -> None:
        while waiting := self._waiting():
            left = deadline - time.monotonic()
            ready = wait([self.processes.pipes[rank] for rank in waiting], max(left, 0))
            if not ready:
                return
            before = bool(self.failures)
            for rank in waiting:
                if self.processes.pipes[rank] in ready:
                    self._receive(rank, self.processes.pipes[rank])
            if self.failures and not before:
                deadline = min(deadline, time.monotonic() + PEERS_SECONDS)

    def _receive(self, rank: int, pipe: Connection) -> None:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            self._died(rank)
            return
        kind, value = pickle.loads(message)
        if kind == "result":
            self.values[rank] = value
        else:
            failure, self.originals[rank] = value
            self.failures.append(failure)

    def _died(self, rank: int) -> None:
        self.dead.add(rank)
        self.failures.append(death_of(rank, self.processes.exit_code(rank)))

    def _clean(self) -> bool:
        """Have every rank put things back; False when one cannot."""
        if self.dead:
            return False
        try:
            for rank in range(self.world):
                self.processes.pipes[rank].send("clean")
            deadline = time.monotonic() + CLEAN_SECONDS
            for rank in range(self.world):
                pipe = self.processes.pipes[rank]
                if not pipe.poll(max(deadline - time.monotonic(), 0)) or pipe.recv_bytes() != b"clean":
                    return False
        except (EOFError, OSError):
            return False
        return True

    def _error(self, stacks: dict[int, str]) -> BaseException:
        """The root cause as an exception."""
        cause = root_cause(self.failures)
        lines = [f"rank {cause.rank} of {self.world}: {cause.headline}", cause.traceback.rstrip()]
        lines += self._output(cause.rank)
        for other in sorted(self.failures, key=lambda failure: failure.time):
            if other is not cause:
                lines.append(f"afterwards rank {other.rank}: {other.headline}")
        lines += [f"rank {rank} was still running, and was stopped:\n{text}" for rank, text in stacks.items()]
        told = RankError("\n".join(line for line in lines if line))
        original = self.originals.get(cause.rank)
        if original is None:
            return told
        error: BaseException = pickle.loads(original)
        error.__cause__ = told
        return error

    def _late(self, stacks: dict[int, str]) -> str:
        ranks = ", ".join(map(str, stacks))
        lines = [f"still running after {self.timeout:g} s: rank {ranks} of {self.world}"]
        for rank, text in stacks.items():
            lines += [f"rank {rank}:", text, *self._output(rank)]
        return "\n".join(lines)

    def _output(self, rank: int) -> list[str]:
        text = self.processes.output(rank, self.marks[rank])
        return [f"output of rank {rank}:", text] if text else []


def reference_to(fn: Callable[..., Any] | str) -> Reference:
    """How a rank finds `fn`. Raises TypeError when it could not."""
    if isinstance(fn, str):
        module, _, qualname = fn.partition(":")
        if not module or not qualname:
            raise TypeError(f'{fn!r}: write "module:name"')
        return Reference(module, qualname)
    module, qualname = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
    if not module or not qualname or "<" in qualname:
        raise TypeError(f"{fn!r}: ranks find functions by name, so it must be at the top level of a module")
    return Reference(module, qualname, getattr(sys.modules.get(module), "__file__", None))
