"""Many dumps read by several processes: unpickling 512 full ring buffers takes one of them longer than all the rest.

The helpers are started as `python -m`, not forked, so that it does not matter what threads the caller has, nor whether
its main module can be imported twice. What they cannot read, the caller reads itself and says what is wrong with it.
"""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from meshwright.diagnose.recorder.read import Dump, looks_like_dump, read_dump
from meshwright.diagnose.unpickle import is_pickle, load_plain
from meshwright.spec.cores import cores
from meshwright.spec.errors import RequestError

WORTH = 32 * 2**20
"""Bytes of dumps below which one process is soon done."""
MOST = 8
"""Processes."""
HEAD = 4096
Take = Callable[[str], Dump | None]
"""Takes a path; the dump in it, if a helper has read it."""


@contextmanager
def read_ahead(files: Sequence[tuple[str, int]]) -> Iterator[Take]:
    """Lets helpers read most of the dumps among `files` (paths and bytes), if there are many.

    They must be asked for in the order of `files`: what lies before a dump that is taken is given up.
    """
    many = sum(size for _, size in files) >= WORTH
    found = {path: size for path, size in files if many and _is_dump(path)}
    dumps = list(found) if sum(found.values()) >= WORTH else []
    processes = min(cores(), MOST)
    # The caller is one of them: every so manieth dump is left to it.
    shares = [dumps[at::processes] for at in range(processes - 1)]
    helpers = [_Helper(share) for share in shares if len(share) > 1 and sys.executable]
    of_path = {path: helper for helper in helpers for path in helper.places}
    try:
        yield lambda path: of_path[path].take(path) if path in of_path else None
    finally:
        for helper in helpers:
            helper.stop()


class _Helper:
    """One process, which reads dumps in their order and writes what it found."""

    def __init__(self, paths: list[str]) -> None:
        self.places = {path: at for at, path in enumerate(paths)}
        self._taken = 0
        # -P: no module from the folder that is diagnosed.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "meshwright.diagnose.recorder.ahead"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with suppress(OSError), self._pipe(self._process.stdin) as stdin:
            stdin.write(json.dumps(paths).encode())

    def take(self, path: str) -> Dump | None:
        """What it read in `path`, which must come after what was taken before."""
        found = None
        while self._taken <= self.places[path]:
            try:
                found = pickle.load(self._pipe(self._process.stdout))  # written by our own process
            except (EOFError, OSError, pickle.UnpicklingError):
                self._taken = len(self.places)
                return None
            self._taken += 1
        return found if isinstance(found, Dump) and found.path == path else None

    def stop(self) -> None:
        """Ends it, whatever it is at."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                self._pipe(pipe).close()
        self._process.wait()

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


def _is_dump(path: str) -> bool:
    """Whether a file begins as the recorder's pickles do: a memory snapshot is a pickle too."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return is_pickle(head) and b"pg_config" in head


def _help() -> None:
    """A helper's work: paths come as JSON, a Dump for each goes out, or None."""
    gc.disable()
    for path in json.loads(sys.stdin.buffer.read()):
        found = None
        try:
            with open(path, "rb") as file:
                parsed = load_plain(file.read())
            found = read_dump(parsed, path) if looks_like_dump(parsed) else None
        except (OSError, RequestError):
            pass
        sys.stdout.buffer.write(pickle.dumps(found, protocol=5))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _help()
