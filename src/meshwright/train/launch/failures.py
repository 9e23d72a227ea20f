"""Why ranks failed, and which of them failed first by itself.

When one rank dies, its peers fail a moment later with "connection closed": those errors are echoes, and the person
needs the error behind them. A failure that is no echo comes before every echo; among equals the earlier comes first.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

# What gloo, NCCL, the TCP store and sockets say on a rank whose peer has gone or never answers.
ECHOES = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "connection was likely closed",
    "broken pipe",
    "remote process exited or there was a network error",
    "nccl communicator was aborted",
    "collective operation timeout",
    "timed out waiting",
    "wait timeout after",
    "socket timeout",
    "failed to recv",
)
ECHO_TYPES = {
    "RuntimeError",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "TimeoutError",
    "ConnectionError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "BrokenPipeError",
}


@dataclass(frozen=True)
class Failure:
    """How one rank failed."""

    rank: int
    time: float
    """Seconds since the epoch, by the clock of the rank (of its launcher where the rank could not say)."""
    kind: str
    """The exception's type, "exit" or "signal"."""
    message: str
    traceback: str = ""
    where: str = ""
    """File, line and function, the innermost that is not a library's."""
    exit_code: int = 1
    """As in the shell; the negative signal number where a signal ended the rank."""
    is_request: bool = False
    """The request was wrong: its message is all that a person needs."""

    @property
    def is_echo(self) -> bool:
        """Whether this is what a rank says when one of its peers has gone."""
        text = self.message.lower()
        return self.kind in ECHO_TYPES and any(words in text for words in ECHOES)

    @property
    def headline(self) -> str:
        """The failure in one line."""
        first = self.message.strip().splitlines()[0] if self.message.strip() else ""
        return first if self.kind in ("exit", "signal") else f"{self.kind}: {first}" if first else self.kind


def failure_of(rank: int, error: BaseException, *, is_request: bool = False) -> Failure:
    """The failure that `error` is, now."""
    text = "".join(traceback.format_exception(error))
    code = 2 if is_request else 1
    return Failure(rank, time.time(), type(error).__name__, str(error), text, _where(error), code, is_request)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    libraries = ("site-packages", "dist-packages", os.path.dirname(os.__file__))
    own = [frame for frame in frames if not any(name in frame.filename for name in libraries)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}" + (f": {frame.line}" if frame.line else "")


def death_of(rank: int, exit_code: int, when: float | None = None) -> Failure:
    """The failure of a rank that ended with `exit_code` and said nothing; negative: by that signal."""
    when = time.time() if when is None else when
    if exit_code >= 0:
        return Failure(rank, when, "exit", f"ended with exit code {exit_code}", exit_code=exit_code)
    return Failure(rank, when, "signal", f"killed by {signal_name(-exit_code)}", exit_code=exit_code)


def signal_name(number: int) -> str:
    """The name of a signal, with what it usually means for a training process."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hints = {
        "SIGKILL": " (killed by the kernel: out of host memory?)",
        "SIGSEGV": " (a crash in native code)",
        "SIGBUS": " (no room in shared memory or on disk?)",
    }
    return name + hints.get(name, "")


def root_cause(failures: Sequence[Failure]) -> Failure:
    """The failure to show first. Raises ValueError for none."""
    if not failures:
        raise ValueError("no failures")
    return min(failures, key=lambda failure: (failure.is_echo, failure.time, failure.rank))
