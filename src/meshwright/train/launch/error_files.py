"""What a rank that fails leaves for whoever started it: `error-0003.json` in the folder of the logs.

The launcher shows the error of the rank that failed first by itself, so ranks do not print tracebacks on the terminal:
theirs go to their log file and into the error file. Under torchrun and Slurm, where nobody sorts them, a rank that only
saw a peer go waits a moment for that peer's error file and then names it in one line.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from meshwright.spec.errors import RequestError
from meshwright.train.launch.environment import LAUNCHER
from meshwright.train.launch.failures import Failure, failure_of, root_cause
from meshwright.train.launch.orphans import watch_parent
from meshwright.train.launch.recorder import dump_collectives
from meshwright.train.metrics.logs import log_path

ECHO_SECONDS = 3.0
"""How long a rank that lost a peer waits for the peer's own error."""
START_SECONDS = 120.0
"""Ranks of one run start within this time."""
_TYPES: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "str": str, "bool": bool}


def error_path(folder: Path, rank: int) -> Path:
    """The error file of one rank in the run's folder."""
    return log_path(folder, rank).with_name(f"error-{rank:04d}.json")


@contextlib.contextmanager
def record_errors(rank: int, folder: Path) -> Iterator[None]:
    """Around all that a rank does: an exception is recorded in the run's folder and ends the process.

    Exit code 2 for a RequestError, 1 for other errors. A KeyboardInterrupt and a SystemExit pass as they are.
    """
    faulthandler.enable()
    watch_parent()
    started = time.time()
    # Of a run before this one in the same folder: it would be taken for a peer's.
    error_path(folder, rank).unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        failure = failure_of(rank, error, is_request=isinstance(error, RequestError))
        dump_collectives(folder, rank)
        write_error(folder, failure)
        if os.environ.get(LAUNCHER) != "local":
            _tell(failure, _awaited_cause(folder, failure, started) if failure.is_echo else failure)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: at its end the interpreter would wait for threads and collectives whose peers are gone.
        os._exit(failure.exit_code)


def write_error(folder: Path, failure: Failure) -> None:
    """Write the error file, whole or not at all, and the traceback into the rank's log. A full disk is passed over."""
    with contextlib.suppress(OSError):
        _write(error_path(folder, failure.rank), asdict(failure))
        with log_path(folder, failure.rank).open("a", encoding="utf-8") as log:
            log.write(failure.traceback)


def note_signal(folder: Path, name: str) -> None:
    """Tell the ranks which signal stopped their launcher, which sends them SIGTERM. A full disk is passed over."""
    with contextlib.suppress(OSError):
        _signal_path(folder).write_text(name, encoding="utf-8")


def noted_signal(folder: Path) -> str | None:
    """The signal that the launcher of this rank was stopped by; None: it said none."""
    if os.environ.get(LAUNCHER) != "local":
        return None
    with contextlib.suppress(OSError):
        return _signal_path(folder).read_text(encoding="utf-8") or None
    return None


def _signal_path(folder: Path) -> Path:
    return log_path(folder, 0).with_name("stopped-by")


def read_errors(folder: Path) -> list[Failure]:
    """The failures that ranks have recorded in the run's folder; a file that is none of ours is passed over."""
    found = []
    for path in sorted(error_path(folder, 0).parent.glob("error-*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found.append(_failure(json.loads(path.read_text(encoding="utf-8"))))
    return found


def remove_errors(folder: Path) -> None:
    """Delete what a run before this one recorded."""
    _signal_path(folder).unlink(missing_ok=True)
    for path in error_path(folder, 0).parent.glob("error-*.json"):
        path.unlink(missing_ok=True)


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document, indent=2), encoding="utf-8")
    os.replace(temporary, path)


def _failure(document: dict[str, Any]) -> Failure:
    for each in fields(Failure):
        if not isinstance(document[each.name], _TYPES[str(each.type)]):
            raise TypeError(each.name)
    return Failure(**document)


def _tell(failure: Failure, cause: Failure) -> None:
    """Say on the terminal, and to torchrun, that this rank failed and that `cause` was behind it."""
    headline = failure.headline
    if cause.rank != failure.rank:
        headline = f"rank {cause.rank} failed with {cause.headline}"
        print(f"rank {failure.rank} stops: {headline}", file=sys.stderr)
    elif failure.is_request:
        print(f"error: {failure.message}", file=sys.stderr)
    else:
        print(f"rank {failure.rank} failed:\n{failure.traceback}", file=sys.stderr)
    asked = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if asked:
        # The form that torchrun's summary reads (torch.distributed.elastic.multiprocessing.errors). It shows the first
        # by whole seconds, so each rank's file tells the cause.
        told = {"py_callstack": cause.traceback, "timestamp": str(int(failure.time))}
        with contextlib.suppress(OSError):
            _write(Path(asked), {"message": {"message": headline, "extraInfo": told}})


def _awaited_cause(folder: Path, failure: Failure, started: float) -> Failure:
    deadline = time.monotonic() + ECHO_SECONDS
    while True:
        # A larger world before this one may have left files that no rank of this one removes.
        recent = [other for other in read_errors(folder) if other.time >= started - START_SECONDS]
        cause = root_cause([*recent, failure])
        if not cause.is_echo or time.monotonic() > deadline:
            return cause
        time.sleep(0.1)
