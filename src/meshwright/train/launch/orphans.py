"""No process outlives the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PARENT = "MESHWRIGHT_PARENT"
"""Process id of the launcher, for its ranks."""
WATCH_SECONDS = 1.0


def parent_death_signal(parent: int, number: int = signal.SIGKILL) -> Callable[[], None]:
    """A function for a new child of process `parent` to call: the kernel then sends it `number` when the parent ends.

    Linux only; elsewhere the function does nothing, and `watch_parent` is what remains. The kernel watches the thread
    that started the child: start ranks from a thread that lives as long as the job. The library is loaded here, since
    after a fork as little as possible should happen.
    """
    if not sys.platform.startswith("linux"):
        return lambda: None
    libc = ctypes.CDLL(None, use_errno=True)

    def call() -> None:
        if libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
        # The parent may have ended before the call: then nobody would ever send the signal.
        if os.getppid() != parent:
            os.kill(os.getpid(), number)

    return call


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have this child of process `parent` end with it."""
    parent_death_signal(parent, number)()


def watch_parent(*, always: bool = False) -> None:
    """Where the kernel cannot (or `always`): end this process once the launcher named in the environment is gone."""
    parent = int(os.environ.get(PARENT, 0))
    if not parent or (sys.platform.startswith("linux") and not always):
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watch-parent").start()
