"""Prefetch: a thread that reads ahead of the training loop."""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
Item: TypeAlias = tuple[T | None, BaseException | None]
"""What was read, or why it could not be."""


class Prefetcher(Generic[T]):
    """read(start), read(start + stride), … in this order, up to `depth` of them ahead.

    An exception of `read` is raised by the `get` whose turn it is, and by every later one. The thread ends with
    `close`, or when the prefetcher is collected.
    """

    def __init__(self, read: Callable[[int], T], start: int, stride: int, depth: int) -> None:
        self._queue: queue.Queue[Item[T]] = queue.Queue(depth)
        self._stop = threading.Event()
        # The thread must not hold the prefetcher, or it would never be collected.
        arguments = (read, start, stride, self._queue, self._stop)
        self._thread = threading.Thread(target=_work, args=arguments, name="meshwright data", daemon=True)
        self._finalizer = weakref.finalize(self, self._stop.set)
        self._error: BaseException | None = None
        self._thread.start()

    def get(self) -> T:
        """The next item; waits for it."""
        if self._error is None:
            item, self._error = self._queue.get()
            if self._error is None:
                return item  # type: ignore[return-value]
        raise self._error

    def close(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()
        self._thread.join()


def _work(read: Callable[[int], T], place: int, stride: int, out: queue.Queue[Item[T]], stop: threading.Event) -> None:
    while not stop.is_set():
        item: Item[T]
        try:
            item = (read(place), None)
        except BaseException as error:
            item = (None, error)
        while not stop.is_set():
            try:
                out.put(item, timeout=0.1)
                break
            except queue.Full:
                continue
        if item[1] is not None:
            return
        place += stride
