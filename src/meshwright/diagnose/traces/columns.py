"""The events of one trace as columns: few bytes each, so that a trace of gigabytes fits into the memory.

Kept is what the rules ask for: kernels, launches, operators, ranges and collectives. The arguments of collectives
alone are kept whole.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from meshwright.diagnose.traces.events import RANGE

KERNEL, COPY, OPERATOR, ANNOTATION, RUNTIME, COLLECTIVE = range(6)
_KINDS = {
    "kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": COPY, "cpu_op": OPERATOR, "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "hip_runtime": RUNTIME, "hip_driver": RUNTIME,
    "runtime": RUNTIME, "operator": OPERATOR, "memcpy": COPY, "memset": COPY, "python_function": -2,
}  # fmt: skip
"""Kineto's categories, in lower case: PyTorch 1.8's began with capitals."""
_GC = re.compile(r"\bgc\b|garbage", re.IGNORECASE)
_LOADER = "enumerate(DataLoader)"
MOST_EVENTS = 20_000_000
"""Of one file, kept: 600 MB of columns."""


class Columns:
    """Columns of the same length; times in microseconds of the trace's clock."""

    def __init__(self) -> None:
        self.start, self.length = array("d"), array("d")
        self.name, self.thread = array("i"), array("i")
        self.kind, self.correlation = array("b"), array("q")
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[str, str], int] = {}
        self.arguments: dict[int, Mapping[str, Any]] = {}
        """Of collectives, by the number of the event."""
        self.left_out = 0

    def add(self, events: Iterable[Any]) -> None:
        """Adds what is a span with a category that is asked for; anything else in `events` is passed over."""
        kinds, names, threads = _KINDS, self.names, self.threads
        for event in events:
            if not isinstance(event, dict) or event.get("ph") != "X":
                continue
            category, name = event.get("cat"), event.get("name")
            kind = kinds.get(category, -1) if isinstance(category, str) else -1
            if kind == -1 and isinstance(category, str):
                kind = kinds.get(category.lower(), -1)
            if kind == -1 or not isinstance(name, str):
                continue
            if kind == -2:
                if not (_GC.search(name) or _LOADER in name):
                    continue
                kind = ANNOTATION
            try:
                start, length = float(event["ts"]), float(event["dur"])
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            if not (0.0 <= length < 1e15 and -1e18 < start < 1e18):  # false for NaN too
                continue
            arguments = event.get("args")
            correlation = -1
            if isinstance(arguments, dict):
                number = arguments.get("correlation")
                if type(number) is int and -1 < number < 2**62:
                    correlation = number
            if (kind == KERNEL and _is_nccl(name)) or (kind in (ANNOTATION, OPERATOR) and name.startswith("gloo:")):
                kept = arguments if isinstance(arguments, dict) else {}
                self.arguments[len(self.start)] = kept
                kind = COLLECTIVE
            thread = (str(event.get("pid")), str(event.get("tid")))
            self._append(start, length, names.setdefault(name, len(names)), kind,
                         threads.setdefault(thread, len(threads)), correlation)  # fmt: skip

    def _append(self, start: float, length: float, name: int, kind: int, thread: int, correlation: int) -> None:
        if len(self.start) >= MOST_EVENTS:
            self.left_out += 1
            self.arguments.pop(len(self.start), None)
            return
        self.start.append(start)
        self.length.append(length)
        self.name.append(name)
        self.kind.append(kind)
        self.thread.append(thread)
        self.correlation.append(correlation)


def _is_nccl(name: str) -> bool:
    """NCCL's and RCCL's kernels: `ncclDevKernel_AllReduce_…`, `ncclKernel_…`; RCCL keeps the names."""
    return name.startswith(("nccl", "rccl")) or "ncclDevKernel" in name or "ncclKernel" in name


def is_loading(name: str) -> bool:
    """PyTorch's DataLoader waits for a batch (torch/utils/data/dataloader.py names the range)."""
    return _LOADER in name


def is_collecting(name: str) -> bool:
    """Python's garbage collection, as an annotation or a traced function tells it."""
    return bool(_GC.search(name)) and not name.startswith(RANGE)


def number(value: object) -> float | None:
    """A finite number of an argument, or None."""
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
