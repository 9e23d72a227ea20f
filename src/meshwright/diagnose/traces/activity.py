"""Where a rank's time goes: computing, sending beside it, sending while nothing computes, nothing of either."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshwright.diagnose.traces.events import COLLECTIVE, RANGE, RankTrace, Span
from meshwright.diagnose.traces.intervals import Spans, difference, intersection, total, union, within

_RANGE = re.compile(rf"{RANGE}(?P<phase>\w+)(?: stage (?P<stage>\d+))?(?: micro-batch (?P<micro>\d+))?$")
_NCCL = {
    "allreduce": "all-reduce", "_allgather_base": "all-gather", "allgather": "all-gather",
    "_reduce_scatter_base": "reduce-scatter", "reduce_scatter": "reduce-scatter", "all_to_allv": "all-to-all",
    "all_to_all": "all-to-all", "broadcast": "broadcast", "reduce": "reduce", "send": "send", "recv": "recv",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Busy:
    """Seconds of one rank in a window; computing, overlapped, exposed and idle are parts of it."""

    window: float
    compute: float
    communication: float
    overlapped: float
    exposed: float
    idle: float


@dataclass(frozen=True, slots=True)
class Sent:
    """Collectives of one kind on one axis in a window."""

    axis: str
    collective: str
    count: int
    seconds: float
    """From begin to end, added up."""
    exposed: float
    """The moments in which one of them is under way and nothing computes."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A `meshwright:…` range."""

    phase: str
    stage: int | None
    micro_batch: int | None
    start: float
    end: float


def phases(trace: RankTrace) -> list[Phase]:
    """The ranges of a trace in time order."""
    found = []
    for span in trace.ranges:
        if match := _RANGE.match(span.name):
            stage, micro = match["stage"], match["micro"]
            found.append(
                Phase(
                    match["phase"],
                    None if stage is None else int(stage),
                    None if micro is None else int(micro),
                    span.start,
                    span.end,
                )
            )
    return sorted(found, key=lambda phase: phase.start)


def busy(trace: RankTrace, start: float, end: float) -> Busy:
    """Where the time between two moments (seconds of the trace's clock) goes."""
    compute = within(_spans(trace.compute), start, end)
    sending = within(_spans(trace.collectives), start, end)
    hidden = total(intersection(compute, sending))
    exposed = total(sending) - hidden
    return Busy(
        end - start, total(compute), total(sending), hidden, exposed, (end - start) - total(compute) - exposed
    )  # fmt: skip


def sent(trace: RankTrace, start: float, end: float) -> list[Sent]:
    """Collectives between two moments by axis and kind, in the order of appearance. The axis may be unknown: "".

    Receiving is part of the row of sends, and no call of it.
    """
    compute = _spans(trace.compute)
    found: dict[tuple[str, str], list[Span]] = {}
    received: dict[str, int] = {}
    for span in trace.collectives:
        if start <= span.start < end:
            axis, kind = _kind(trace, span)
            if kind == "recv":
                # One exchange with its peer's sending: both at once are under way once.
                received[axis], kind = received.get(axis, 0) + 1, "send"
            found.setdefault((axis, kind), []).append(span)
    return [
        Sent(
            axis,
            collective,
            len(spans) - (received.get(axis, 0) if collective == "send" else 0),
            sum(span.seconds for span in spans),
            total(difference(within(_spans(spans), start, end), compute)),
        )
        for (axis, collective), spans in found.items()
    ]


def _kind(trace: RankTrace, span: Span) -> tuple[str, str]:
    """Axis and kind of a collective."""
    if span.name.startswith(COLLECTIVE):
        words = span.name.removeprefix(COLLECTIVE).split(" ")
        return words[0], words[1]
    about = span.arguments or {}
    group = str(about.get("Process Group Name", ""))
    axis = str(about.get("Process Group Description", "")) or trace.groups.get(group, "")
    axis = "world" if axis == "default_pg" else axis
    name = str(about.get("Collective name", "")) or span.name.removeprefix("gloo:")
    return axis, _NCCL.get(name.lower(), name.replace("_", "-"))


def _spans(spans: Iterable[Span] | Sequence[Span]) -> Spans:
    return union([(span.start, span.end) for span in spans])
