"""Kinds, bytes and bandwidth of collectives, from what Kineto writes beside NCCL's kernels and gloo's spans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from meshwright.diagnose.traces.columns import number
from meshwright.spec.collective import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER, bus_factor

SYNCHRONISING = frozenset({ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, "barrier"})
"""No member is through before the last one has come, so all end together."""
_KINDS = (
    ("allreduce", ALL_REDUCE), ("allgather", ALL_GATHER), ("reducescatter", REDUCE_SCATTER),
    ("alltoall", ALL_TO_ALL), ("broadcast", "broadcast"), ("barrier", "barrier"), ("sendrecv", "send-recv"),
    ("send", "send"), ("recv", "recv"), ("gather", "gather"), ("scatter", "scatter"), ("reduce", "reduce"),
)  # fmt: skip
_ITEM = {
    "double": 8, "long": 8, "complexfloat": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2,
    "c10::bfloat16": 2, "c10::half": 2, "long int": 8, "byte": 1, "char": 1, "bool": 1, "unsigned char": 1,
    "signed char": 1,
}  # fmt: skip
"""Bytes of a value, by the names of c10's scalar types."""


def kind_of(name: str, arguments: Mapping[str, Any]) -> str:
    """The kind of a collective; "" where neither its arguments nor its name tell."""
    told = str(arguments.get("Collective name", ""))
    plain = re.sub(r"[_\-]", "", told or name.removeprefix("gloo:").partition("(")[0]).lower()
    return next((kind for key, kind in _KINDS if key in plain), "")


def bytes_of(arguments: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Bytes of the message (the larger of input and output) and of the output; None: not said."""
    if "In msg nelems" in arguments or "Out msg nelems" in arguments:
        item = _item(str(arguments.get("dtype", "")))
        given, got = number(arguments.get("In msg nelems")), number(arguments.get("Out msg nelems"))
        known = [one * item for one in (given, got) if item and one is not None and one >= 0]
        return max(known, default=None), got * item if item and got is not None and got >= 0 else None
    total = _of_inputs(arguments.get("Input Dims"), arguments.get("Input type"))
    return total, None


def _item(dtype: str) -> int:
    lower = dtype.lower()
    return 1 if lower.startswith("float8") else _ITEM.get(lower, 0)


def _of_inputs(dims: Any, types: Any) -> float | None:
    """Bytes of the tensors that a profiler with record_shapes notes."""
    if not isinstance(dims, list) or not isinstance(types, list):
        return None
    total = 0.0
    for shape, dtype in zip(dims, types, strict=False):
        if isinstance(shape, list) and shape and all(type(one) is int and one >= 0 for one in shape):
            count = 1.0
            for one in shape:
                count *= one
            total += count * _item(str(dtype))
    return total or None


def group_of(arguments: Mapping[str, Any]) -> tuple[str, str, int | None]:
    """The text that all members of a group share, its description and its size."""
    name, description = (
        str(arguments.get("Process Group Name", "")),
        str(arguments.get("Process Group Description", "")),
    )
    size = number(arguments.get("Group size"))
    members = str(arguments.get("Process Group Ranks", ""))
    description = "" if description in ("undefined", "default_pg") else description
    return f"{name} {members}".strip(), description, int(size) if size is not None and 1 <= size < 2**31 else None


def bus_bandwidth(kind: str, size: float, seconds: float, members: int) -> float | None:
    """Bytes per second over a member's link (nccl-tests, PERFORMANCE.md); None: not to be said."""
    if seconds <= 0 or members < 2:
        return None
    if kind not in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL):
        return None
    return size * bus_factor(kind, members) / seconds
