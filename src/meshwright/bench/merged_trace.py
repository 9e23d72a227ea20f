"""The traces of all ranks as one, on one clock, for Perfetto (ui.perfetto.dev) or chrome://tracing.

Ranks of one node have the same clock. Of another node's ranks the clock is set so that the barrier before the traced
steps ends at the same moment as on rank 0.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshwright.bench.case import trace_path

FILE = "trace.json.gz"
MOST_RANKS = 32
"""Perfetto opens no more in reasonable time; of a larger world every n-th rank is taken."""


def merge_traces(ranks: Sequence[Mapping[str, Any]], folder: Path) -> Path | None:
    """Write `folder`/trace.json.gz from the traces that the ranks left there; None: they left none."""
    step = max(-(-len(ranks) // MOST_RANKS), 1)
    chosen = [one for one in ranks[::step] if one.get("traced") and trace_path(folder, one["rank"]).exists()]
    if not chosen:
        return None
    first = chosen[0]
    path = folder / FILE
    temporary = path.with_name(f".{FILE}.{os.getpid()}")
    with gzip.open(temporary, "wt", encoding="utf-8", compresslevel=5) as out:
        out.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        comma = ""
        for one in chosen:
            shift = 0.0 if one["node"] == first["node"] else first["traced"]["sync"] - one["traced"]["sync"]
            for event in _events(one["rank"], trace_path(folder, one["rank"]), first["traced"]["sync"], shift):
                out.write(comma + json.dumps(event))
                comma = ",\n"
        out.write("\n]}\n")
    os.replace(temporary, path)
    for one in ranks:
        trace_path(folder, one["rank"]).unlink(missing_ok=True)
    return path


def _events(rank: int, path: Path, zero: float, shift: float) -> Iterator[dict[str, Any]]:
    """A rank's events, microseconds since `zero`; each of its processes and devices has a number of its own."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    base = float(document.get("baseTimeNanoseconds") or 0) / 1e9
    numbers: dict[str, int] = {}
    for event in document["traceEvents"]:
        if not isinstance(event, dict) or "ts" not in event:
            if event.get("ph") == "M":
                yield {**event, "pid": _number(numbers, rank, event.get("pid")), **_name(rank, event)}
            continue
        moved = round((base + event["ts"] / 1e6 - zero + shift) * 1e6, 3)
        named = _name(rank, event) if event.get("ph") == "M" else {}
        # Arrows join events with equal numbers, which each rank counts for itself.
        joined = {"id": f"{rank}.{event['id']}"} if "id" in event else {}
        yield {**event, "ts": moved, "pid": _number(numbers, rank, event.get("pid")), **named, **joined}


def _number(numbers: dict[str, int], rank: int, process: object) -> int:
    return rank * 100 + numbers.setdefault(str(process), len(numbers))


def _name(rank: int, event: Mapping[str, Any]) -> dict[str, Any]:
    if event.get("name") != "process_name":
        return {}
    said = (event.get("args") or {}).get("name", "")
    return {"args": {"name": f"rank {rank}: {said}"}}
