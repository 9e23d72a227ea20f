"""One rank's Kineto trace as lists of spans, sorted into what this package asks for.

PyTorch's profiler writes them (`export_chrome_trace`): times in microseconds, `baseTimeNanoseconds` added. Of a GPU the
kernels count, of a CPU the operators. Collectives are NCCL's kernels or gloo's spans.
"""

from __future__ import annotations

import gzip
import json
import zlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.spec.errors import RequestError

RANGE = "meshwright:"
"""How the names of our own ranges begin (`modes.ranges` makes them)."""
COLLECTIVE = f"{RANGE}collective "
"""… and of a collective's call: AXIS KIND BYTES follow (`modes.annotate`)."""


class TraceError(RequestError):
    """A trace that cannot be read."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted: seconds since the trace's base."""

    name: str
    start: float
    end: float
    thread: str = ""
    arguments: Mapping[str, Any] | None = None

    @property
    def seconds(self) -> float:
        """How long."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What a rank did while it was traced."""

    rank: int | None
    world_size: int | None
    groups: Mapping[str, str]
    """Process groups: their description by name."""
    base_seconds: float
    """Since the epoch; the spans count from here."""
    ranges: tuple[Span, ...]
    """`meshwright:…` ranges; on a GPU, from the first to the last kernel that was launched in them."""
    compute: tuple[Span, ...]
    collectives: tuple[Span, ...]
    on_gpu: bool


def read_trace(path: Path) -> RankTrace:
    """The trace of one rank, `.json` or `.json.gz`. Raises TraceError: not there, cut off, or no trace."""
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        document = json.loads(text)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise TraceError(f"{path} is no trace that can be read: {str(error)[:200]}.") from error
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise TraceError(f"{path} is no trace: it has no list of traceEvents.")
    return trace_of(document)


def trace_of(document: Mapping[str, Any]) -> RankTrace:
    """The same of a trace that is read already."""
    about = document.get("distributedInfo")
    about = about if isinstance(about, dict) else {}
    listed = about.get("pg_config")
    groups = {
        str(one.get("pg_name")): str(one.get("pg_desc"))
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict)
    }
    spans = list(_spans(document["traceEvents"]))
    on_gpu = any(kind == "kernel" for kind, _ in spans)
    named = _of(spans, "user_annotation", COLLECTIVE)
    ranges = [span for span in _of(spans, "user_annotation", RANGE) if not span.name.startswith(COLLECTIVE)]
    kernels = [span for kind, span in spans if kind in ("kernel", "gpu_memcpy", "gpu_memset")]
    if on_gpu:
        ranges = _on_device(ranges, [span for kind, span in spans if kind in _LAUNCHES], kernels)
        collectives = [span for span in kernels if "nccl" in span.name.lower()]
        compute = [span for span in kernels if "nccl" not in span.name.lower()]
    else:
        collectives = _named([span for kind, span in spans if kind == "user_annotation" and _is_gloo(span)], named)
        compute = [span for kind, span in spans if kind == "cpu_op" and computes(span.name)]
    rank, world = about.get("rank"), about.get("world_size")
    return RankTrace(
        rank if isinstance(rank, int) else None,
        world if isinstance(world, int) else None,
        groups,
        _number(document.get("baseTimeNanoseconds")) / 1e9,
        tuple(ranges),
        tuple(compute),
        tuple(collectives),
        on_gpu,
    )


def _spans(events: Iterable[Any]) -> Iterable[tuple[str, Span]]:
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X" and isinstance(event.get("name"), str):
            start, length = _number(event.get("ts")) / 1e6, _number(event.get("dur")) / 1e6
            arguments = event.get("args")
            yield (
                str(event.get("cat")),
                Span(
                    event["name"], start, start + length, str(event.get("tid")),
                    arguments if isinstance(arguments, dict) else None,
                ),
            )  # fmt: skip


def _of(spans: Iterable[tuple[str, Span]], wanted: str, prefix: str) -> list[Span]:
    return [span for kind, span in spans if kind == wanted and span.name.startswith(prefix)]


def _is_gloo(span: Span) -> bool:
    return span.name.startswith("gloo:")


def computes(name: str) -> bool:
    """Whether a CPU operator is work: others wrap it, and may wait for a peer meanwhile."""
    return name.startswith("aten::") or "fused" in name


_LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")


def _on_device(ranges: list[Span], launches: list[Span], kernels: list[Span]) -> list[Span]:
    """The host's ranges as the device saw them: the kernels that were launched meanwhile, on whichever thread.

    Kineto's own `gpu_user_annotation` counts the range's thread alone, and backward is launched by autograd's. A range
    that launched nothing is left where the host had it.
    """
    by_number = {_correlation(kernel): kernel for kernel in kernels if _correlation(kernel) is not None}
    pairs = [(launch.start, by_number[n]) for launch in launches if (n := _correlation(launch)) in by_number]
    pairs.sort(key=lambda pair: pair[0])
    moments = [start for start, _ in pairs]
    found = []
    for span in ranges:
        inside = [kernel for _, kernel in pairs[bisect_left(moments, span.start) : bisect_right(moments, span.end)]]
        if inside:
            start, end = min(kernel.start for kernel in inside), max(kernel.end for kernel in inside)
            span = Span(span.name, start, end, span.thread, span.arguments)
        found.append(span)
    return found


def _correlation(span: Span) -> object:
    return (span.arguments or {}).get("correlation")


_CARRIES = {"all_reduce": ("all-reduce", "reduce-scatter"), "all_to_all": ("all-to-all",)}
"""Kinds of calls that gloo runs under another name; reduce-scatters are all-reduces there."""


def _named(collectives: list[Span], calls: list[Span]) -> list[Span]:
    """Gloo's spans under the name of the call that they carry out: the first of their kind that has none yet.

    Gloo's threads take calls in their order, and begin some time after them.
    """
    waiting: dict[str, deque[Span]] = {}
    for call in sorted(calls, key=lambda span: span.start):
        waiting.setdefault(call.name.split(" ")[2], deque()).append(call)
    found = []
    for span in sorted(collectives, key=lambda one: one.start):
        kind = span.name.removeprefix("gloo:")
        kinds = _CARRIES.get(kind, (kind.replace("_", "-"),))
        ready = [queue for name in kinds if (queue := waiting.get(name)) and queue[0].start <= span.start]
        if not ready:
            found.append(span)
            continue
        call = min(ready, key=lambda queue: queue[0].start).popleft()
        found.append(Span(call.name, span.start, span.end, span.thread, span.arguments))
    return found


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0
