"""Log files: `logs/rank-0003.log` has what one rank says; the first rank speaks on the terminal, too."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TextIO

from meshwright.spec.errors import RequestError

LOGGER = "meshwright"
"""Name of the package's logger."""
_FORMAT = "%(asctime)s.%(msecs)03d rank {rank} %(levelname)s %(name)s: %(message)s"


class _Terminal(logging.Handler):
    """Prints messages on a stream; stderr is looked up each time, since a live progress line puts itself before it."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message, unless it says `file_only`: the terminal shows it in another way."""
        if getattr(record, "file_only", False):
            return
        try:
            print(record.getMessage(), file=self._stream or sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def log_path(folder: Path, rank: int) -> Path:
    """The log file of one rank."""
    return folder / "logs" / f"rank-{rank:04d}.log"


def set_up_logs(folder: Path, rank: int, *, terminal: TextIO | None = None) -> logging.Logger:
    """Send this rank's log, and Python's warnings, to its file; the first rank's messages also to `terminal` (stderr).

    Files are appended to, so that a resumed run keeps what came before. Raises RequestError: no such file can be made.
    """
    logger = logging.getLogger(LOGGER)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.INFO)
    logger.propagate = False
    path = log_path(folder, rank)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"Cannot write the log {path}: {error.strerror}.") from error
    file.setFormatter(logging.Formatter(_FORMAT.format(rank=rank), datefmt="%Y-%m-%d %H:%M:%S"))
    logger.addHandler(file)
    if rank == 0:
        logger.addHandler(_Terminal(terminal))
    _take_warnings(file)
    return logger


def _take_warnings(file: logging.Handler) -> None:
    """Python's warnings go to the file: a wall of them, one a rank, would hide the progress line."""
    logging.captureWarnings(True)
    logger = logging.getLogger("py.warnings")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.addHandler(file)
    logger.propagate = False
