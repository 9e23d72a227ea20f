"""Exports of a rehearsed rank: for Perfetto, for PyTorch's memory viewer, and as text.

- `timeline.json`: a Chrome trace whose counter is the bytes alive; a microsecond an event, as nothing takes time.
- `snapshot.pickle`: what pytorch.org/memory_viz opens (drag it there): every allocation with its place.
- `collectives.txt`: one collective a line, in order: axis, operation, bytes of the whole tensor.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from meshwright.rehearse.result import RankRehearsal
from meshwright.train.config.files import write_atomically

TIMELINE, SNAPSHOT, COLLECTIVES = "timeline.json", "snapshot.pickle", "collectives.txt"


def write_exports(found: RankRehearsal, folder: Path) -> list[Path]:
    """Write all three into `folder/rank-N`; `found` has its history. Returns the paths."""
    place = folder / f"rank-{found.rank}"
    place.mkdir(parents=True, exist_ok=True)
    write_atomically(place / TIMELINE, json.dumps(timeline(found)))
    write_atomically(place / SNAPSHOT, pickle.dumps(snapshot(found), protocol=4))
    write_atomically(place / COLLECTIVES, "".join(f"{line}\n" for line in found.collectives))
    return [place / name for name in (TIMELINE, SNAPSHOT, COLLECTIVES)]


def timeline(found: RankRehearsal) -> dict[str, Any]:
    """A Chrome trace."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": found.rank, "args": {"name": f"rank {found.rank} (rehearsed)"}}
    ]
    for at, size, where in found.timeline:
        events.append({"ph": "C", "name": "bytes alive", "pid": found.rank, "ts": at, "args": {"bytes": size}})
        events.append({"ph": "i", "s": "p", "name": where, "pid": found.rank, "tid": 0, "ts": at})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def snapshot(found: RankRehearsal) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot` gives, with one trace and no segments: there is no device."""
    trace: list[dict[str, Any]] = []
    addresses: dict[int, int] = {}
    free = 1 << 40
    for at, (block, size, where) in enumerate(found.history):
        common = {"stream": 0, "time_us": at, "frames": [{"name": where, "filename": "", "line": 0}]}
        if size > 0:
            addresses[block], free = free, free + size
            trace.append({"action": "alloc", "addr": addresses[block], "size": size, **common})
        else:
            for action in ("free_requested", "free_completed"):
                trace.append({"action": action, "addr": addresses[block], "size": -size, **common})
    return {"segments": [], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}
