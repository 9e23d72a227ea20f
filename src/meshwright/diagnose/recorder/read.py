"""A dump of the Flight Recorder: PyTorch's pickle or JSON, of NCCL or gloo, as plain records."""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from meshwright.spec.errors import RequestError

_PEERS = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)")
_DIGITS = re.compile(r"(\d+)(?!.*\d)")


class DumpError(RequestError):
    """A dump that is not one."""


Channel = tuple[str, tuple[int, int] | None]
"""Where sequence numbers count: a group, or the messages of a pair in one direction."""
RECENT = 128
"""Completed entries that are kept of each dump. A ring buffer holds thousands, and those are over on every rank."""


class Entry(NamedTuple):
    """One collective, or one send or receive, that a rank has enqueued. A tuple, as a job has hundreds of thousands."""

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
    """In the order in which they were enqueued: all that are not known to have completed, and the last `RECENT`."""
    backend: str
    """nccl, gloo."""
    reached: Mapping[Channel, int]
    """The last sequence number of each channel that the rank has entered, entries that are left out among them."""
    count: int
    """Entries in the dump."""


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
        listed = parsed["entries"]
        old = [one for one in listed[:-RECENT] if one.get("state") != "completed"]
        entries = tuple(_entry(one) for one in (*old, *listed[-RECENT:]))
        listed_groups = parsed.get("pg_config", {}).values()
        # gloo names its default group "" here and "0" in the entries.
        groups = {str(one["name"]) or "0": tuple(json.loads(one["ranks"])) for one in listed_groups
                  if one.get("name") is not None}  # fmt: skip
        reached = _reached(listed)
        backend = str(parsed["entries"][0]["profiling_name"]).partition(":")[0] if entries else ""
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, SyntaxError, RecursionError) as error:
        raise DumpError(f"{path}: an entry is not as the Flight Recorder writes it ({error!r}).") from error
    groups = {name: ranks for name, ranks in groups.items() if ranks}
    return Dump(path, int(found[1]), groups, entries, backend, reached, len(listed))


def _reached(listed: Sequence[Mapping[str, Any]]) -> dict[Channel, int]:
    # They are listed as they were enqueued, so that the last of a name is the furthest.
    named = {(one["process_group"][0], one["profiling_name"]): one for one in listed}
    last: dict[Channel, int] = {}
    for (group, name), one in named.items():
        channel = (group, _operation(name)[1])
        last[channel] = max(_sequence(one, channel[1]), last.get(channel, -1))
    return last


def _sequence(one: Mapping[str, Any], peers: object) -> int:
    """Messages are counted apart, by PyTorch since 2.3."""
    return int(one["p2p_seq_id"] or one["collective_seq_id"]) if peers else int(one["collective_seq_id"])


def _entry(one: Mapping[str, Any]) -> Entry:
    (group, description) = one["process_group"]
    operation, peers = _operation(str(one["profiling_name"]))
    return Entry(
        str(group),
        str(description),
        _sequence(one, peers),
        operation,
        peers,
        _shapes(one.get("input_sizes") or ()),
        _shapes(one.get("output_sizes") or ()),
        tuple(map(str, one.get("input_dtypes") or ())),
        one.get("state") == "completed",
        int(one.get("time_created_ns") or 0),
        _frame(one.get("frames") or ()),
    )


@lru_cache(4096)
def _operation(profiling_name: str) -> tuple[str, tuple[int, int] | None]:
    """Operation and peers of `nccl:all_reduce` or `nccl:send 0->1`."""
    name = profiling_name.partition(":")[2]
    peers = _PEERS.match(name)
    if peers is None:
        return name, None
    here, there = int(peers[2]), int(peers[4])
    return peers[1], (here, there) if peers[1] == "send" else (there, here)


def _shapes(sizes: Any) -> tuple[tuple[int, ...], ...]:
    """Shapes from a list of lists, or from one that is written out."""
    listed = literal_eval(sizes) if isinstance(sizes, str) else sizes
    return tuple([tuple(map(int, shape)) for shape in listed])


def _frame(frames: Any) -> str:
    """The innermost frame outside of PyTorch."""
    for one in frames:
        if "/torch/" not in str(one.get("filename", "")):
            return f"{one.get('filename')}:{one.get('line')} {one.get('name')}"
    return ""
