"""A memory snapshot, read from what the pickle or a printed listing holds.

Format: torch/cuda/memory.py `_snapshot` (segments with blocks, device_traces), torch/cuda/_memory_viz.py; lists of
segments from torch.cuda.memory_snapshot() of 1.x, whose blocks have no addresses and no frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.spec.errors import RequestError

LARGEST = 2**60
"""Bytes; a larger or negative size is none."""
ACTIVE, WAITING, INACTIVE = "active_allocated", "active_awaiting_free", "inactive"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment."""

    size: int
    state: str
    site: str
    """The frame that allocated it, as `file:line function`; "" where it is not known."""
    frames: str
    """All its frames, for the rules that look for names."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One cudaMalloc."""

    device: int
    size: int
    expandable: bool
    stream: int
    blocks: tuple[Block, ...]
    complete: bool
    """Whether the blocks fill it (a printed listing is often cut)."""


@dataclass(frozen=True, slots=True)
class Event:
    """An action of the allocator."""

    action: str
    address: int
    size: int
    free: int | None
    """What the driver still had, at an `oom`."""
    site: str
    frames: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Of one process."""

    path: str
    segments: tuple[Segment, ...]
    traces: tuple[tuple[Event, ...], ...]
    """By device."""
    skipped: int
    """Segments, blocks and events that could not be read."""
    line: int | None = None


def looks_like_snapshot(parsed: Any) -> bool:
    """Whether it has a snapshot's shape: a dict with segments, or a list of segments."""
    if isinstance(parsed, dict):
        return "device_traces" in parsed or _are_segments(parsed.get("segments"))
    return _are_segments(parsed)


def _are_segments(parsed: Any) -> bool:
    return isinstance(parsed, list) and bool(parsed) and all(
        isinstance(one, dict) and "total_size" in one and "blocks" in one for one in parsed[:3]
    )  # fmt: skip


def read_snapshot(parsed: Any, path: str, line: int | None = None) -> Snapshot:
    """The snapshot. Raises RequestError: nothing in it can be read."""
    whole = parsed if isinstance(parsed, dict) else {"segments": parsed}
    found = whole.get("segments")
    raw = [whole] if "total_size" in whole else found if isinstance(found, list) else []
    segments = [segment for one in raw if (segment := _segment(one)) is not None]
    found = whole.get("device_traces")
    raw_traces = found if isinstance(found, list) else []
    frames: dict[int, tuple[str, str]] = {}
    traces = [
        [_event(one, frames) for one in trace if isinstance(one, dict)]
        for trace in raw_traces
        if isinstance(trace, list)
    ]
    kept = tuple(tuple(event for event in trace if event is not None) for trace in traces)
    skipped = len(raw) - len(segments) + sum(len(a) - len(b) for a, b in zip(traces, kept, strict=True))
    if not segments and not any(kept):
        raise RequestError("a memory snapshot without segments and events: memory history was not recorded")
    return Snapshot(path, tuple(segments), kept, skipped, line)


def _segment(raw: Any) -> Segment | None:
    size = _size(raw.get("total_size")) if isinstance(raw, Mapping) else None
    listed = raw.get("blocks") if isinstance(raw, Mapping) else None
    if size is None or not isinstance(listed, list):
        return None
    blocks = tuple(block for one in listed if (block := _block(one)) is not None)
    filled = sum(one.size for one in blocks) == size
    if not filled and (active := _size(raw.get("active_size"))) is not None:
        blocks = (*blocks, *_unlisted(size, active, blocks))
    return Segment(
        _size(raw.get("device")) or 0,
        size,
        raw.get("is_expandable") is True,
        _size(raw.get("stream")) or 0,
        blocks,
        filled,
    )


def _unlisted(size: int, active: int, blocks: Iterable[Block]) -> tuple[Block, ...]:
    """What a cut listing leaves out, by the segment's own sums; where it lies is not known."""
    known = list(blocks)
    used = sum(one.size for one in known if one.state != INACTIVE)
    more = max(0, active - used)
    rest = size - sum(one.size for one in known) - more
    return tuple(
        Block(left, state, "", "") for left, state in ((more, ACTIVE), (max(0, rest), INACTIVE)) if left
    )  # fmt: skip


def _block(raw: Any) -> Block | None:
    if not isinstance(raw, Mapping) or (size := _size(raw.get("size"))) is None:
        return None
    state = raw.get("state")
    site, frames = _frames(raw)
    return Block(size, state if isinstance(state, str) else "", site, frames)


def _event(raw: Mapping[str, Any], known: dict[int, tuple[str, str]]) -> Event | None:
    size, action = _size(raw.get("size")), raw.get("action")
    if size is None or not isinstance(action, str):
        return None
    site, frames = _frames(raw, known)
    return Event(action, _number(raw.get("addr")), size, _size(raw.get("device_free")), site, frames)


MOST_FRAMES = 48
_OF_TORCH = ("/torch/", "site-packages", "dist-packages", ".cpp", ".cc", ".h", "??", "<frozen")


def _frames(raw: Mapping[str, Any], known: dict[int, tuple[str, str]] | None = None) -> tuple[str, str]:
    """The first frame of the program's own (else the first of all), and all frames in one text."""
    listed = raw.get("frames")
    if listed is None and isinstance(history := raw.get("history"), list) and history and isinstance(history[0], dict):
        listed = history[0].get("frames")
    if not isinstance(listed, list) or not listed:
        return "", ""
    if known is not None and (before := known.get(id(listed))) is not None:
        return before  # a pickle holds the frames of equal stacks once
    shown = [one for one in listed[:MOST_FRAMES] if isinstance(one, Mapping)]
    texts = [_frame(one) for one in shown]
    site = next((one for one in texts if one and not any(part in one for part in _OF_TORCH)), texts[0] if texts else "")
    result = site[:200], "\n".join(f"{one.get('filename', '')} in {one.get('name', '')}("[:300] for one in shown)
    if known is not None:
        known[id(listed)] = result
    return result


def _frame(raw: Mapping[str, Any]) -> str:
    return f"{raw.get('filename', '')}:{raw.get('line', '')} {raw.get('name', '')}"[:300]


def _size(raw: Any) -> int | None:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < LARGEST else None


def _number(raw: Any) -> int:
    return raw if isinstance(raw, int) else 0
