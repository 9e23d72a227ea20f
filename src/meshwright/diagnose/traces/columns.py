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
    "runtime": RUNTIME, "operator": OPERATOR, "memcpy": COPY, "memset": COPY,
}  # fmt: skip
"""Kineto's categories, in lower case: PyTorch 1.8's began with capitals."""
_GC = re.compile(r"\bgc\b|garbage|built-in (?:function|method) collect\b", re.IGNORECASE)
_LOADER = "enumerate(DataLoader)"
MOST_EVENTS = 20_000_000
"""Of one file, kept: 600 MB of columns."""


class Columns:
    """Columns of the same length; times in microseconds of the trace's clock."""

    def __init__(self) -> None:
        self.start, self.length = array("d"), array("d")
        self.name, self.kind, self.correlation = array("i"), array("b"), array("q")
        self.names: dict[str, int] = {}
        self.arguments: dict[int, Mapping[str, Any]] = {}
        """Of collectives, by the number of the event."""
        self.left_out = 0
        self._collective: list[tuple[int, ...]] = []
        """By the number of the name: the kinds of events that are collectives if they are called so."""

    def add(self, events: Iterable[Any]) -> None:
        """Adds what is a span with a category that is asked for; anything else in `events` is passed over."""
        kind_of, number_of, collective = _KINDS.get, self.names.get, self._collective
        for event in events:
            try:
                if event["ph"] != "X":
                    continue
                kind = kind_of(event["cat"], -1)
                start, length = float(event["ts"]), float(event["dur"])
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            if kind < 0:
                kind = _other_kind(event)
            if kind < 0 or not (0.0 <= length < 1e15 and -1e18 < start < 1e18):  # false for NaN too
                continue
            name = event.get("name")
            number = number_of(name) if isinstance(name, str) else -1
            if number is None:
                number = self._new(name)
            if number < 0:
                continue
            correlation = -1
            if kind != OPERATOR and kind != ANNOTATION:
                arguments = event.get("args")
                given = arguments.get("correlation") if isinstance(arguments, dict) else None
                if type(given) is int and -1 < given < 2**62:
                    correlation = given
            if kind in collective[number]:
                kind = COLLECTIVE
                arguments = event.get("args")
                self.arguments[len(self.start)] = arguments if isinstance(arguments, dict) else {}
            self.start.append(start)
            self.length.append(length)
            self.name.append(number)
            self.kind.append(kind)
            self.correlation.append(correlation)

    @property
    def full(self) -> bool:
        """Whether no more can be kept."""
        return len(self.start) >= MOST_EVENTS

    def _new(self, name: str) -> int:
        gloo = name.startswith("gloo:")
        self._collective.append((ANNOTATION, OPERATOR) if gloo else (KERNEL,) if _is_nccl(name) else ())
        return self.names.setdefault(name, len(self.names))


def _other_kind(event: Mapping[str, Any]) -> int:
    """The kind of an event whose category is not written as today, or counts for some names alone."""
    category, name = event.get("cat"), event.get("name")
    if category == "python_function" and isinstance(name, str) and (_LOADER in name or _GC.search(name)):
        return ANNOTATION
    return _KINDS.get(category.lower(), -1) if isinstance(category, str) else -1


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
