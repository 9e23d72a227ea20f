"""What a memory snapshot says: fragmentation or true capacity at a failure, what is kept, a reserve that grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.line import rank_in_path
from meshwright.diagnose.memory import advice
from meshwright.diagnose.memory.place import place_of
from meshwright.diagnose.memory.sizes import MIB, percent, shown
from meshwright.diagnose.memory.snapshot.blocks import Layout, last_failure, layouts
from meshwright.diagnose.memory.snapshot.curve import SETTLED, Curve, curve
from meshwright.diagnose.memory.snapshot.read import Event, Snapshot

PINNED_SHARE = 0.3
"""Of the reserve: inactive memory in segments that something alive keeps. Between steps of a healthy job activations
lie so too, hence no more than "possible" without a failure."""
LEAK_SHARE, LEAK_BYTES = 0.10, 64 * MIB
"""Rise of the baseline over a settled history, of its end, and at least so much."""
FLAT = 0.02
"""Of the peak: active memory that moves less is flat."""


@dataclass
class Snapshots:
    """Of one job."""

    all: list[Snapshot] = field(default_factory=list)


def find_in_snapshots(facts: Facts) -> Iterator[Finding]:
    """Each snapshot's Findings."""
    for one in facts.of(Snapshots).all:
        yield from judge_snapshot(one)


def judge_snapshot(one: Snapshot) -> Iterator[Finding]:
    """Device by device: the last failure, else how memory lies; then the history."""
    lying = layouts(one.segments)
    devices = {*lying, *(device for device, trace in enumerate(one.traces) if trace)}
    for device in sorted(devices):
        trace = one.traces[device] if device < len(one.traces) else ()
        layout = lying.get(device)
        failed, fresh = last_failure(trace)
        if failed is not None and layout is not None:
            yield _failure(one, layout, failed, fresh)
        elif layout is not None:
            yield from _lying(one, layout, bool(trace))
        if (history := curve(trace)) is not None:
            yield from _history(one, device, history)


def _failure(one: Snapshot, layout: Layout, failed: Event, fresh: bool) -> Finding:
    """pytorch#35901: the sum of the free blocks would hold the request and no block does."""
    request, idle = failed.size, layout.inactive
    where = place_of([line for line in reversed(failed.frames.split("\n")) if line])
    numbers = (
        f"a request of {shown(request)} failed with {shown(layout.active)} active, {shown(idle)} inactive in blocks of "
        f"at most {shown(layout.largest)}, {shown(layout.reserved)} reserved"
    )
    sure = CERTAIN if fresh and layout.listed else LIKELY
    if layout.largest < request <= idle:
        return _finding(
            one, layout.device, "fragmentation", ERROR, sure,
            f"Free memory lies in blocks that are too small: {numbers}.",
            advice.FRAGMENTATION, 4, failed, layout,
        )  # fmt: skip
    if idle + (failed.free or 0) < request:
        category, change = _of_place(where.phase, where.head)
        return _finding(
            one, layout.device, category, ERROR, sure if category == "oom_capacity" else LIKELY,
            f"The device is full: {numbers}{_most(layout)}.", change, 3, failed, layout,
        )  # fmt: skip
    return _finding(
        one, layout.device, "oom_capacity", ERROR, POSSIBLE,
        f"An allocation failed though a block of its size is free (another stream or pool, or freed since): {numbers}.",
        ("Take the snapshot at the failure (torch._C._cuda_attach_out_of_memory_observer).", *advice.capacity("")),
        1, failed, layout,
    )  # fmt: skip


def _of_place(phase: str, head: bool) -> tuple[str, tuple[str, ...]]:
    if phase == "save":
        return "oom_checkpoint", advice.SAVE
    if head:
        return "oom_logits", advice.LOGITS
    return "oom_capacity", (*advice.capacity(phase), advice.NO_SETTING)


def _lying(one: Snapshot, layout: Layout, recorded: bool) -> Iterator[Finding]:
    """Without a failure: much memory in segments that cannot be returned."""
    if layout.expandable or layout.pinned < PINNED_SHARE * layout.reserved or layout.pinned < LEAK_BYTES:
        return
    yield _finding(
        one, layout.device, "fragmentation", INFO if recorded or one.line is None else WARNING, POSSIBLE,
        f"{shown(layout.pinned)} of {shown(layout.reserved)} reserved ({percent(layout.pinned, layout.reserved)}) are "
        f"free and in segments that {shown(layout.active)} of live blocks keep from being returned or used whole.",
        advice.FRAGMENTATION, 2, None, layout,
    )  # fmt: skip


def _history(one: Snapshot, device: int, history: Curve) -> Iterator[Finding]:
    lows, peaks = history.lows[SETTLED:], history.peaks[SETTLED:]
    rise = lows[-1] - lows[0]
    rising = all(b >= a for a, b in pairwise(lows))
    if rising and rise >= max(LEAK_BYTES, LEAK_SHARE * max(peaks)):
        saves = place_of(list(reversed(history.frames.split("\n")))).phase == "save"
        kept = ", ".join(f"{shown(size)} at {site or 'a site without frames'}" for site, size in history.kept)
        yield _finding(
            one, device, "oom_checkpoint" if saves else "oom_capacity", WARNING, LIKELY if saves else POSSIBLE,
            f"The memory that stays between peaks grows by {shown(rise)} over the recorded history, "
            f"and is not freed: {kept}.",
            advice.SAVE if saves else ("Drop what is kept from step to step (losses, outputs, gathered states).",),
            2, None, None,
        )  # fmt: skip
    grown = history.reserved[-1] - history.reserved[SETTLED]
    flat = max(peaks) - min(peaks) <= FLAT * max(1, max(peaks))
    if flat and grown >= max(LEAK_BYTES, LEAK_SHARE * max(peaks)):
        yield _finding(
            one, device, "fragmentation", WARNING, LIKELY,
            f"The reserve grew by {shown(grown)} while the peak of what is active stayed at the same level.",
            advice.FRAGMENTATION, 2, None, None,
        )  # fmt: skip


def _most(layout: Layout) -> str:
    told = "; ".join(f"{shown(size)} at {site}" for site, size in layout.sites)
    return f". Most was allocated at: {told}" if told else ""


def _finding(
    one: Snapshot, device: int, category: str, severity: str, confidence: str, cause: str, change: tuple[str, ...],
    weight: int, failed: Event | None, layout: Layout | None,
) -> Finding:  # fmt: skip
    where = f" at {failed.site}" if failed is not None and failed.site else ""
    event = f"oom of {failed.size:,} bytes{where}" if failed is not None else ""
    sums = (
        f"device {device}: {layout.reserved:,} bytes reserved, {layout.active:,} active, {layout.waiting:,} awaiting "
        f"free, {layout.inactive:,} inactive"
        if layout is not None
        else f"device {device}: the recorded history"
    )
    rank = rank_in_path(one.path)
    return Finding(
        category, severity, confidence, () if rank is None else (rank,), cause,
        (Evidence(one.path, sums, one.line, event, rank),),
        "Drag the snapshot to pytorch.org/memory_viz.", change, weight=weight,
    )  # fmt: skip
