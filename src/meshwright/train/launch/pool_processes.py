"""The processes of a RankPool as the pool sees them: start, output, stacks, exit codes, end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

START_SECONDS = 300.0
"""Importing torch on a busy machine with a cold disk."""
DUMP_SECONDS = 5.0
OUTPUT_BYTES = 6000


class PoolProcesses:
    """One process that has imported torch, and the `size` ranks forked from it. `pipes[rank]` leads to a rank."""

    def __init__(self, size: int, folder: Path, threads: int) -> None:
        self.size = size
        self.folder = folder
        self.pipes: list[Connection] = []
        self._pids: list[int] = []
        self._generation = 0
        self._port: int | None = None
        self._control, theirs = socket.socketpair()
        command = [sys.executable, "-m", "meshwright.train.launch.pool_worker"]
        with theirs, (folder / "start.log").open("w") as log:
            self._parent = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid()), str(folder)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
                # Ctrl-C is for the process that runs the pool; it ends the ranks.
                start_new_session=True,
            )
        self._start()

    def _start(self) -> None:
        """Ask for `size` ranks; does not wait for them."""
        self._generation += 1
        self._port = None
        pairs = [socket.socketpair() for _ in range(self.size)]
        request = json.dumps({"start": self.size, "generation": self._generation}).encode()
        with contextlib.suppress(BrokenPipeError):  # `ready` says what happened
            socket.send_fds(self._control, [request], [theirs.fileno() for _, theirs in pairs])
        for _, theirs in pairs:
            theirs.close()
        self.pipes = [Connection(ours.detach()) for ours, _ in pairs]
        self._pids = []

    def ready(self) -> int:
        """Wait until all ranks are there; returns the port of their store."""
        if self._port is None:
            self._pids = self._answer()
            ports = []
            for rank, pipe in enumerate(self.pipes):
                if not pipe.poll(START_SECONDS):
                    raise RuntimeError(f"rank {rank} did not start within {START_SECONDS:g} s")
                try:
                    ports.append(pipe.recv())
                except EOFError:
                    raise RuntimeError(f"rank {rank} did not start:\n{self.output(rank)}") from None
            self._port = ports[0]
        return self._port

    def _answer(self) -> Any:
        self._control.settimeout(START_SECONDS)
        text = b""
        while not text.endswith(b"\n"):
            part = self._control.recv(65536)
            if not part:
                raise RuntimeError(f"ranks cannot be started:\n{(self.folder / 'start.log').read_text()}")
            text += part
        return json.loads(text)

    def exit_code(self, rank: int) -> int:
        """How a rank whose pipe is closed ended: its exit code, negative for a signal."""
        self._control.sendall(json.dumps({"wait": self._pids[rank]}).encode())
        self._pids[rank], code = 0, int(self._answer())
        return code

    def _file(self, rank: int, suffix: str) -> Path:
        return self.folder / f"rank-{rank:05d}.{self._generation}{suffix}"

    def output_size(self, rank: int) -> int:
        """Bytes that a rank has printed so far."""
        path = self._file(rank, ".log")
        return path.stat().st_size if path.exists() else 0

    def output(self, rank: int, since: int = 0) -> str:
        """The end of what a rank has printed after its first `since` bytes."""
        path = self._file(rank, ".log")
        text = path.read_bytes()[since:] if path.exists() else b""
        return text[-OUTPUT_BYTES:].decode(errors="replace").strip()

    def stacks(self, rank: int) -> str:
        """The Python stack of a rank and the last collectives it recorded."""
        stacks, collectives = self._file(rank, ".stacks"), self._file(rank, ".collectives")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pids[rank], signal.SIGUSR1)
        deadline = time.monotonic() + DUMP_SECONDS
        while time.monotonic() < deadline and not (collectives.exists() and stacks.stat().st_size):
            time.sleep(0.02)
        text = stacks.read_text(errors="replace").strip() if stacks.exists() else ""
        log = collectives.read_text().strip() if collectives.exists() else ""
        return (text or "no stack") + (f"\nlast collectives:\n{log}" if log else "")

    def dump(self, rank: int) -> bytes:
        """The Flight Recorder's dump of a rank whose `stacks` were asked for; empty: it has none."""
        file = self._file(rank, ".recorder")
        return file.read_bytes() if file.exists() else b""

    def restart(self) -> None:
        """Kill all ranks and start new ones."""
        self._kill()
        self._start()

    def _kill(self) -> None:
        if not self._pids and self._port is None:
            with contextlib.suppress(Exception):
                self._pids = self._answer()
        for pid in filter(None, self._pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for rank, pid in enumerate(self._pids):
            if pid:
                with contextlib.suppress(OSError, RuntimeError):
                    self.exit_code(rank)
        for pipe in self.pipes:
            pipe.close()

    def close(self) -> None:
        """End every process."""
        self._parent.kill()  # the kernel ends its ranks with it
        self._control.close()
        for pipe in self.pipes:
            pipe.close()
        self._parent.wait()
        for pid in filter(None, self._pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
