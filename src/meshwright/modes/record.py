"""Record: every collective that this rank really runs, whoever issues it.

    with Recorder(mesh) as record:
        step()
    for row in summarize(record.entries):
        print(row.axis, row.collective, row.count, row.bytes)

While somebody listens, the dispatcher's operators `c10d::*` (see `collective_ops`) have a kernel in front of the
device's that notes the call. That is one place for eager code, compiled code, C++ (DDP's reducer) and backward on any
thread, where a TorchDispatchMode would slow every operator down and keep blocks from being compiled. With no listener
the kernel is not there, so it costs nothing. A CUDA graph is noted when it is captured, not when it is replayed;
what does not go through a process group (symmetric memory, NVSHMEM) is not seen. Listening must begin and end while
this rank runs no collective.

`enable_recent(n)` keeps the last n calls, for whoever asks where a job hangs; some ten microseconds a collective.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import torch
import torch.distributed as dist

from meshwright.cost.wire_row import SMALL, WireRow
from meshwright.modes.axis_names import AxisNames
from meshwright.modes.collective_ops import OPERATORS, Operator
from meshwright.modes.mesh import Mesh

_KEY = torch.DispatchKey.BackendSelect
"""The last step of dispatch before a device's kernel: every call passes it, and these operators have nothing there."""
_BELOW = torch._C._dispatch_keyset_full_after(_KEY)


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective on this rank."""

    collective: str
    """all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, reduce, gather, scatter, send, recv, barrier."""
    axis: str
    """See `AxisNames`."""
    ranks: int
    """Of its process group."""
    bytes: int
    """Of the whole tensor (nccl-tests' convention)."""
    parts: int
    """`ranks` times the bytes that this rank sends (`collective_ops`)."""
    site: str
    """file:line of the nearest caller outside of PyTorch; empty on threads without Python frames."""

    @property
    def sent(self) -> float:
        """Bytes that this rank sends."""
        return self.parts / self.ranks

    def __str__(self) -> str:
        return (
            f"{self.collective} over {self.axis} ({self.ranks} ranks), {self.bytes:,} bytes, {self.site or 'autograd'}"
        )


def summarize(entries: Iterable[Entry]) -> list[WireRow]:
    """Rows by axis, kind and smallness, in the order of first appearance.

    Left out is what sends nothing anywhere: groups of one rank, barriers, and receiving (the peer's row has it).
    """
    found: dict[tuple[str, str, bool], list[Entry]] = {}
    for entry in entries:
        if entry.ranks > 1 and entry.collective not in ("barrier", "recv"):
            found.setdefault((entry.axis, entry.collective, entry.bytes <= SMALL), []).append(entry)
    return [
        WireRow(axis, collective, len(calls), float(sum(Fraction(e.parts, e.ranks) for e in calls)), small)
        for (axis, collective, small), calls in found.items()
    ]


class Recorder:
    """Records this rank's collectives while it is entered; several may be at once. `entries` stay afterwards.

    Without a mesh, axes are named by what DeviceMesh calls their groups.
    """

    def __init__(self, mesh: Mesh | None = None) -> None:
        self.entries: list[Entry] = []
        self._names = AxisNames(mesh)

    def __enter__(self) -> Recorder:
        _tap.add(self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _tap.remove(self._note)

    def _note(self, operator: Operator, arguments: tuple[Any, ...]) -> None:
        self.entries.append(entry_of(operator, arguments, self._names))


def enable_recent(last: int = 64, mesh: Mesh | None = None) -> None:
    """From now on keep the `last` collectives for `recent`; again: with an empty memory. 0 ends it."""
    global _recent
    if _recent is not None:
        _tap.remove(_recent.note)
        _recent = None
    if last > 0:
        _recent = _Recent(last, mesh)
        _tap.add(_recent.note)


def recent() -> list[Entry]:
    """The last collectives that began, the latest last; of a rank that hangs, the one it hangs in or waits for.

    Empty unless `enable_recent` was called. Any thread may ask.
    """
    return _recent.entries() if _recent is not None else []


class _Recent:
    def __init__(self, last: int, mesh: Mesh | None) -> None:
        self._ring: deque[Entry] = deque(maxlen=last)
        self._names = AxisNames(mesh)

    def note(self, operator: Operator, arguments: tuple[Any, ...]) -> None:
        self._ring.append(entry_of(operator, arguments, self._names))

    def entries(self) -> list[Entry]:
        while True:
            try:
                return list(self._ring)
            except RuntimeError:  # it grew meanwhile
                continue


def note(name: str, arguments: tuple[Any, ...]) -> None:
    """Have a call of the operator `c10d::<name>` recorded that nobody runs, as in a rehearsal."""
    _tap.tell(OPERATORS[name], arguments)


def set_around(around: Around | None) -> None:
    """What every collective runs in from now on; None: nothing."""
    _tap.surround(around)


def entry_of(operator: Operator, arguments: tuple[Any, ...], names: AxisNames) -> Entry:
    """The Entry of one call."""
    group = dist.ProcessGroup.unbox(arguments[operator.group])
    ranks = group.size()
    size, sent = operator.read(arguments, group.rank(), ranks)
    return Entry(operator.collective, names.of(group), ranks, size, sent, _site())


_TORCH = str(Path(torch.__file__).parent)
_foreign: dict[CodeType, bool] = {}
"""Whether a function is neither PyTorch's nor ours; asked once."""


def _site() -> str:
    """file:line of the nearest frame outside of PyTorch, of this file and of `comm`."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        foreign = _foreign.get(code)
        if foreign is None:
            name = code.co_filename
            foreign = not (name.startswith((_TORCH, "<")) or name in (__file__, _COMM))
            _foreign[code] = foreign
        if foreign:
            return f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


_COMM = str(Path(__file__).with_name("comm.py"))
Listener = Callable[[Operator, tuple[Any, ...]], None]
Around = Callable[[Operator, tuple[Any, ...]], AbstractContextManager[Any]]


class _Tap:
    """The kernels that note calls, there as long as somebody listens, or has them run in something."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self._around: Around | None = None
        self._library: torch.library.Library | None = None
        self._lock = threading.Lock()

    def add(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)
            self._settle()

    def remove(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != listener)
            self._settle()

    def tell(self, operator: Operator, arguments: tuple[Any, ...]) -> None:
        """Tell everybody of one call."""
        for listener in self._listeners:
            listener(operator, arguments)

    def surround(self, around: Around | None) -> None:
        """Have every call run in `around(operator, arguments)`."""
        with self._lock:
            self._around = around
            self._settle()

    def _settle(self) -> None:
        """Have the kernels there where they are needed, and nowhere else."""
        needed = bool(self._listeners) or self._around is not None
        if needed and self._library is None:
            self._library = self._note_all()
        elif not needed and self._library is not None:
            self._library._destroy()  # type: ignore[no-untyped-call]
            self._library = None

    def _note_all(self) -> torch.library.Library:
        library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
        for name, operator in OPERATORS.items():
            noting = self._noting(operator, getattr(torch.ops.c10d, name).default)
            library.impl(name, noting, _KEY.name, with_keyset=True)  # type: ignore[no-untyped-call]
        return library

    def _noting(self, operator: Operator, overload: Any) -> Callable[..., Any]:
        def call(keys: torch.DispatchKeySet, *arguments: Any) -> Any:
            self.tell(operator, arguments)
            around = self._around
            # Gives up the interpreter's lock, which a backend's threads may need before they can take a new call.
            if around is None:
                return overload.redispatch(keys & _BELOW, *arguments)
            with around(operator, arguments):
                return overload.redispatch(keys & _BELOW, *arguments)

        return call


_tap = _Tap()
_recent: _Recent | None = None
