"""PyTorch's Flight Recorder in our own runs: switched on, and its dumps written when a run fails.

A rank that fails writes its dump. Ranks that still wait for it cannot be interrupted in a collective, so each has a
thread that writes the dump once the launcher asks for it. `meshwright diagnose` and the launcher read them. Nothing
here imports torch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

from meshwright.train.config.files import write_atomically
from meshwright.train.launch.environment import LAUNCHER
from meshwright.train.metrics.logs import log_path

ENTRIES = 2000
"""Collectives that a rank remembers."""
WATCH_SECONDS = 0.25
"""Between two looks for the launcher's request."""


def dump_path(folder: Path, rank: int) -> Path:
    """The dump of one rank in the run's folder."""
    return log_path(folder, rank).with_name(f"recorder-{rank:04d}.pickle")


def record_collectives(folder: Path, rank: int) -> None:
    """Switches the recorder on. Call it before the process group is made; what a person has set stays."""
    dump_path(folder, rank).unlink(missing_ok=True)
    switch_recorder_on()
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", str(dump_path(folder, rank).with_name("nccl-recorder-")))
    if os.environ.get(LAUNCHER) == "local":
        threading.Thread(target=_watch, args=(folder, rank), daemon=True, name="watch-recorder").start()


def switch_recorder_on() -> None:
    """Has process groups that are made from now on remember their collectives, unless a person has set how many."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(ENTRIES))


def dump_of_collectives(*, lines: bool = False) -> bytes:
    """The dump of this process, with the lines of the program if asked; empty where torch is not imported."""
    torch = sys.modules.get("torch")
    return b"" if torch is None else torch._C._distributed_c10d._dump_fr_trace(True, lines, False)


def dump_collectives(folder: Path, rank: int) -> None:
    """Writes this rank's dump, whole or not at all; nothing where no process group was made or the disk is full.

    First without the lines of the program, which take PyTorch seconds to look up, in which a rank may be stopped.
    """
    for lines in (False, True):
        with contextlib.suppress(Exception):
            if data := dump_of_collectives(lines=lines):
                write_atomically(dump_path(folder, rank), data)


def ask_for_dumps(folder: Path) -> None:
    """Asks every rank for its dump; the launcher does, when one has failed. A full disk is passed over."""
    with contextlib.suppress(OSError):
        _request_path(folder).touch()


def remove_dumps(folder: Path) -> None:
    """Deletes what a run before this one left."""
    _request_path(folder).unlink(missing_ok=True)
    for pattern in ("recorder-*.pickle", "nccl-recorder-*"):
        for path in _request_path(folder).parent.glob(pattern):
            path.unlink(missing_ok=True)


def _request_path(folder: Path) -> Path:
    return log_path(folder, 0).with_name("dump-request")


def _watch(folder: Path, rank: int) -> None:
    while not _request_path(folder).exists():
        time.sleep(WATCH_SECONDS)
    dump_collectives(folder, rank)
