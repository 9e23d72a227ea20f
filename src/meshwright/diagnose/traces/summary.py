"""From the columns of one trace to what is kept of its rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.diagnose.traces import columns as kinds
from meshwright.diagnose.traces.activity import Busy, Phase, phases
from meshwright.diagnose.traces.collectives import bytes_of, group_of, kind_of
from meshwright.diagnose.traces.columns import Columns, is_collecting, is_loading
from meshwright.diagnose.traces.events import COLLECTIVE, RANGE, RankTrace, Span, computes
from meshwright.diagnose.traces.intervals import Spans, difference, intersection, part, total, union
from meshwright.diagnose.traces.ranks import Collective, Rank, Step, Work

MOST_STEPS = 10_000
_FREES = ("cudaFree", "hipFree")
_ALLOCATIONS = ("cudaMalloc", "hipMalloc")
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Table:
    """The columns as arrays; times are seconds from the first event."""

    start: Numbers
    end: Numbers
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    correlation: NDArray[np.int64]
    names: Sequence[str]

    def where(self, *wanted: int) -> Mask:
        return np.isin(self.kind, wanted)

    def named(self, test: Any) -> Mask:
        """Annotations whose name passes a test."""
        found = np.array([bool(test(one)) for one in self.names], dtype=bool)
        return found[self.name] & self.where(kinds.ANNOTATION)

    def spans(self, mask: Mask) -> Spans:
        return union(np.stack((self.start[mask], self.end[mask]), axis=1))


@dataclass(frozen=True, slots=True)
class _Activity:
    """What happened when, as sets of moments."""

    compute: Spans
    sending: Spans
    loading: Spans
    collecting: Spans
    host: Spans


def summarise(found: Columns, about: dict[str, Any], path: str, problem: str) -> Rank:
    """The rank of a trace. `about`: `rank`, `world`, `base` (seconds), `devices`."""
    table = _table(found)
    zero = float(np.min(np.frombuffer(found.start))) / 1e6 if len(found.start) else 0.0
    on_gpu = bool(table.where(kinds.KERNEL, kinds.COPY).any())
    sending = table.where(kinds.COLLECTIVE)
    if on_gpu:  # gloo's spans are the host's
        sending &= np.array([not one.startswith("gloo:") for one in table.names], dtype=bool)[table.name]
        work = table.where(kinds.KERNEL)
    else:
        work = np.array([computes(one) for one in table.names], dtype=bool)[table.name] & table.where(kinds.OPERATOR)
    activity = _Activity(
        table.spans(work | table.where(kinds.COPY)), table.spans(sending),
        table.spans(table.named(lambda name: is_loading(name) or name == f"{RANGE}data")),
        table.spans(table.named(is_collecting)), table.spans(table.where(kinds.OPERATOR, kinds.RUNTIME)),
    )  # fmt: skip
    launched = _launched(table)
    names, host, windows = _windows(table, work | sending | table.where(kinds.COPY), launched, on_gpu)
    steps = tuple(
        _step(name, begin, end, table, activity, work) for name, (begin, end) in zip(names, windows, strict=True)
    )
    edges = host if on_gpu else windows
    moment = np.where(np.isnan(launched), table.start, launched)
    inside = _inside(windows[:, 0], windows[:, 1], table.start)
    counted = work & (inside >= 0) if len(windows) else work
    delays = (table.start - launched)[counted & ~np.isnan(launched)] if on_gpu else np.empty(0)
    lengths = (table.end - table.start)[counted]
    return Rank(
        path, about.get("rank"), about.get("world"), about.get("base", 0.0) + zero, on_gpu, about.get("devices", 0),
        problem,
        _busy(activity, *_extent(table, on_gpu)),
        steps,
        _collectives(found, table, sending, activity.compute, _inside(edges[:, 0], edges[:, 1], moment)),
        _work(table, counted),
        float(np.median(lengths)) if len(lengths) else 0.0,
        float(np.median(delays)) if len(delays) else None,
        _phases(table, launched, on_gpu),
        any("all_to_all" in one or "all2all" in one for one in table.names if not one.startswith("nccl")
            or one.startswith("nccl:")),
    )  # fmt: skip


def _extent(table: _Table, on_gpu: bool) -> tuple[float, float]:
    """From the first event to the last; of a device, from its first to its last."""
    mask = table.where(kinds.KERNEL, kinds.COPY, kinds.COLLECTIVE) if on_gpu else np.ones(len(table.start), dtype=bool)
    return float(table.start[mask].min(initial=np.inf if mask.any() else 0.0)), float(table.end[mask].max(initial=0.0))


def _table(found: Columns) -> _Table:
    start = np.array(found.start, dtype=np.float64)
    start -= start.min() if len(start) else 0.0
    start /= 1e6
    return _Table(
        start,
        start + np.frombuffer(found.length, dtype=np.float64) / 1e6 if len(start) else start,
        np.array(found.kind, dtype=np.int8),
        np.array(found.name, dtype=np.int32),
        np.array(found.correlation, dtype=np.int64),
        list(found.names),
    )


def _launched(table: _Table) -> Numbers:
    """When the host launched each event of the device; NaN: not known, or no event of the device."""
    found = np.full(len(table.start), np.nan)
    calls = np.flatnonzero(table.where(kinds.RUNTIME) & (table.correlation >= 0))
    device = np.flatnonzero(table.where(kinds.KERNEL, kinds.COPY, kinds.COLLECTIVE) & (table.correlation >= 0))
    if len(calls) and len(device):
        calls = calls[np.argsort(table.correlation[calls], kind="stable")]
        place = np.searchsorted(table.correlation[calls], table.correlation[device])
        place = np.minimum(place, len(calls) - 1)
        same = table.correlation[calls[place]] == table.correlation[device]
        found[device[same]] = table.start[calls[place[same]]]
    return found


def _windows(table: _Table, device: Mask, launched: Numbers, on_gpu: bool) -> tuple[list[str], Spans, Spans]:
    """Names of the steps, and when they were: on the host, and on the device by what was launched in them."""
    mask = table.named(lambda name: name.startswith("ProfilerStep"))
    if not mask.any():
        mask = table.named(lambda name: name == f"{RANGE}step")
    order = np.flatnonzero(mask)[np.argsort(table.start[mask], kind="stable")][:MOST_STEPS]
    own = [table.names[table.name[one]] for one in order]
    numbered = own if len(set(own)) == len(own) else [f"{name} {n}" for n, name in enumerate(own)]
    host = np.stack((table.start[order], table.end[order]), axis=1).reshape(-1, 2)
    if not len(host):
        host = _between_optimizers(table)
        numbered = [f"step {n}" for n in range(len(host))]
    known = device & ~np.isnan(launched)
    if not on_gpu or not len(host) or known.sum() < 0.5 * device.sum():
        return numbered, host, host
    begins, ends = [], []
    inside = _inside(host[:, 0], host[:, 1], launched)
    for n in range(len(host)):
        mine = known & (inside == n)
        begins.append(float(table.start[mine].min()) if mine.any() else float(host[n, 0]))
        ends.append(float(table.end[mine].max()) if mine.any() else float(host[n, 1]))
    starts = np.maximum.accumulate(np.array(begins))
    closed = np.maximum(np.array([*starts[1:], ends[-1]]), starts)
    return numbered, host, np.stack((starts, closed), axis=1)


def _between_optimizers(table: _Table) -> Spans:
    """Steps of a profile whose step() was not called: from the end of one optimizer step to that of the next.

    The profiler marks each call as `Optimizer.step#SGD.step` (torch/optim/optimizer.py).
    """
    mask = table.named(lambda name: name.startswith("Optimizer.step#"))
    if not mask.any():
        return np.empty((0, 2))
    names, counts = np.unique(table.name[mask], return_counts=True)
    ends = np.sort(table.end[mask & (table.name == names[np.argmax(counts)])])[:MOST_STEPS]
    return np.stack((np.concatenate(([table.start.min()], ends[:-1])), ends), axis=1)


def _inside(begins: Numbers, ends: Numbers, moments: Numbers) -> NDArray[np.int64]:
    """In which of sorted windows each moment lies; -1: in none."""
    if not len(begins):
        return np.full(len(moments), -1)
    place = np.searchsorted(begins, moments, "right") - 1
    fine = (place >= 0) & (moments < ends[np.maximum(place, 0)])
    return np.where(fine, place, -1)


def _busy(activity: _Activity, start: float, end: float) -> Busy:
    start, end = float(start), float(end)
    compute, sending = part(activity.compute, start, end), part(activity.sending, start, end)
    hidden = total(intersection(compute, sending))
    exposed = total(sending) - hidden
    window = end - start
    return Busy(window, total(compute), total(sending), hidden, exposed, window - total(compute) - exposed)


def _step(name: str, start: float, end: float, table: _Table, activity: _Activity, work: Mask) -> Step:
    start, end = float(start), float(end)
    done = union(np.concatenate((part(activity.compute, start, end), part(activity.sending, start, end))))
    idle = difference(np.array([[start, end]]), done) if end > start else np.empty((0, 2))
    loading = part(activity.loading, start, end)
    here = (table.start >= start) & (table.start < end)
    calls = here & table.where(kinds.RUNTIME)
    named = [np.isin(table.name, [n for n, one in enumerate(table.names) if one in wanted]) & calls
             for wanted in (_FREES, _ALLOCATIONS)]  # fmt: skip
    both = named[0] | named[1]
    return Step(
        name, start, _busy(activity, start, end), int((here & work).sum()), total(loading),
        total(intersection(loading, idle)), total(part(activity.collecting, start, end)),
        total(intersection(part(activity.host, start, end), idle)), int(named[0].sum()), int(named[1].sum()),
        float((table.end - table.start)[both].sum()),
    )  # fmt: skip


def _collectives(
    found: Columns, table: _Table, mask: Mask, compute: Spans, step: NDArray[np.int64]
) -> tuple[Collective, ...]:
    made = []
    hidden = _computed_before(compute, table.end) - _computed_before(compute, table.start)
    for place in np.flatnonzero(mask)[np.argsort(table.start[mask], kind="stable")]:
        arguments = found.arguments.get(int(place), {})
        group, description, size = group_of(arguments)
        message, received = bytes_of(arguments)
        made.append(
            Collective(
                int(step[place]), group, description, kind_of(table.names[table.name[place]], arguments), message,
                received, size, float(table.start[place]), float(table.end[place]),
                float(max(0.0, table.end[place] - table.start[place] - hidden[place])),
            )
        )  # fmt: skip
    return tuple(made)


def _computed_before(compute: Spans, moments: Numbers) -> Numbers:
    """Seconds of computing before each moment."""
    if not len(compute):
        return np.zeros(len(moments))
    whole = np.concatenate(([0.0], np.cumsum(compute[:, 1] - compute[:, 0])))
    place = np.searchsorted(compute[:, 0], moments, "right")
    last = np.maximum(place - 1, 0)
    return whole[place] - np.where(place > 0, np.maximum(0.0, compute[last, 1] - moments), 0.0)


def _work(table: _Table, mask: Mask) -> dict[str, Work]:
    """Count, median and sum by name."""
    order = np.flatnonzero(mask)
    order = order[np.argsort(table.name[order], kind="stable")]
    lengths = (table.end - table.start)[order]
    changes = np.flatnonzero(np.diff(table.name[order])) + 1
    return {
        table.names[table.name[group[0]]]: Work(len(group), float(np.median(of)), float(of.sum()))
        for group, of in zip(np.split(order, changes), np.split(lengths, changes), strict=True)
        if len(group)
    }


def _phases(table: _Table, launched: Numbers, on_gpu: bool) -> tuple[Phase, ...]:
    """The `meshwright:…` ranges, where the device had what was launched in them."""
    mask = table.named(lambda name: name.startswith(RANGE) and not name.startswith(COLLECTIVE))
    device = np.flatnonzero(~np.isnan(launched))
    device = device[np.argsort(launched[device], kind="stable")]
    spans = []
    for place in np.flatnonzero(mask):
        start, end = float(table.start[place]), float(table.end[place])
        if on_gpu:
            inside = device[slice(*np.searchsorted(launched[device], (start, end)))]
            if len(inside):
                start, end = float(table.start[inside].min()), float(table.end[inside].max())
        spans.append(Span(table.names[table.name[place]], start, end))
    return tuple(phases(RankTrace(None, None, {}, 0.0, tuple(spans), (), (), on_gpu)))
