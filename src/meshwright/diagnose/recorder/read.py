"""A dump of the Flight Recorder: PyTorch's pickle or JSON, of NCCL or gloo, as plain records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.spec.errors import RequestError

_PEERS = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)")
_DIGITS = re.compile(r"(\d+)(?!.*\d)")


class DumpError(RequestError):
    """A dump that is not one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective, or one send or receive, that a rank has enqueued."""

    group: str
    description: str
    """Of the group."""
    sequence: int
    """Which collective of the group it is; of a message, which one between the two."""
    operation: str
    """all_reduce, _all_gather_base, send, recv, …"""
    peers: tuple[int, int] | None
    """From and to, as ranks of the group; None: a collective."""
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    done: bool
    """It is known to have completed."""
    created_ns: int
    frame: str
    """The innermost line of the program, where it was recorded."""


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's."""

    path: str
    rank: int
    groups: Mapping[str, tuple[int, ...]]
    """Members by name of the group, where the dump says so (gloo does not)."""
    entries: tuple[Entry, ...]
    backend: str
    """nccl, gloo."""


def looks_like_dump(parsed: Any) -> bool:
    """Whether a parsed pickle or JSON is one."""
    return isinstance(parsed, Mapping) and isinstance(parsed.get("entries"), list) and "version" in parsed


def read_dump(parsed: Any, path: str) -> Dump:
    """The records of a parsed dump; its rank is the last number in the file's name. Raises DumpError."""
    found = _DIGITS.search(path.rpartition("/")[2])
    if not looks_like_dump(parsed):
        raise DumpError(f"{path} is no dump of the Flight Recorder.")
    if found is None:
        raise DumpError(f"{path}: the file's name does not end in a rank.", ["nccl_trace_rank_3"])
    try:
        entries = tuple(_entry(one) for one in parsed["entries"])
        groups = {str(one["name"]): tuple(json.loads(one["ranks"])) for one in parsed.get("pg_config", {}).values()
                  if one.get("name") is not None}  # fmt: skip
        backend = str(parsed["entries"][0]["profiling_name"]).partition(":")[0] if entries else ""
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DumpError(f"{path}: an entry is not as the Flight Recorder writes it ({error!r}).") from error
    return Dump(path, int(found[1]), {name: ranks for name, ranks in groups.items() if ranks}, entries, backend)


def _entry(one: Mapping[str, Any]) -> Entry:
    name, (group, description) = str(one["profiling_name"]).partition(":")[2], one["process_group"]
    peers = _PEERS.match(name)
    pair = None
    if peers:
        here, there = int(peers[2]), int(peers[4])
        pair = (here, there) if peers[1] == "send" else (there, here)
    sequence = int(one["p2p_seq_id"] or one["collective_seq_id"]) if peers else int(one["collective_seq_id"])
    return Entry(
        group=str(group),
        description=str(description),
        sequence=sequence,
        operation=peers[1] if peers else name,
        peers=pair,
        inputs=_shapes(one.get("input_sizes")),
        outputs=_shapes(one.get("output_sizes")),
        dtypes=tuple(str(dtype) for dtype in one.get("input_dtypes") or ()),
        done=one.get("state") == "completed",
        created_ns=int(one.get("time_created_ns") or 0),
        frame=_frame(one.get("frames") or ()),
    )


def _shapes(sizes: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(n) for n in shape) for shape in sizes or ())


def _frame(frames: Any) -> str:
    """The innermost frame outside of PyTorch."""
    for one in frames:
        if "/torch/" not in str(one.get("filename", "")):
            return f"{one.get('filename')}:{one.get('line')} {one.get('name')}"
    return ""
