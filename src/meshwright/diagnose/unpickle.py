"""Pickles from a cluster, read without running anything in them: every look-up of a class or a function is refused."""

from __future__ import annotations

import io
import pickle
import re
from typing import IO, Any, cast

from meshwright.spec.errors import RequestError

BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, AttributeError, TypeError, OverflowError,
    MemoryError, RecursionError,
)  # fmt: skip
"""What a damaged pickle raises."""


_START = re.compile(rb"\x80[\x02-\x05]|\((?:d|l|i)p?\d*\n|[\]}]q\x00")
"""Protocols 2 to 5 name themselves; 0 and 1 begin with the container that they hold (pickletools)."""


class PickleError(RequestError):
    """A pickle that is damaged, or holds more than plain data."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise PickleError(f"it asks for {module}.{name}, and plain data only is read")

    def persistent_load(self, pid: Any) -> Any:
        raise PickleError("it refers to objects outside of it, and plain data only is read")


def is_pickle(head: bytes) -> bool:
    """Whether a file begins as a pickle of a dict or a list does, in any protocol."""
    return _START.match(head) is not None


def load_plain(data: bytes) -> Any:
    """The numbers, texts, lists and dicts that a pickle of any protocol holds. Raises PickleError."""
    # An unpickler asks a stream that it cannot peek into for every single byte.
    stream = cast("IO[bytes]", io.BufferedReader(cast("io.RawIOBase", io.BytesIO(data))))
    try:
        return _Plain(stream).load()
    except PickleError:
        raise
    except BROKEN as error:
        raise PickleError(f"it is no whole pickle ({type(error).__name__})") from error
