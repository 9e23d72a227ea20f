"""Who comes late to the collectives that all members have entered, and by how much.

Dumps carry the time of each rank's own clock, and hosts' clocks differ. A collective that follows another at once is
entered by all together: there the difference between ranks is that of their clocks, and it is taken out everywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import pairwise
from statistics import median

from meshwright.diagnose.recorder.read import Dump, Entry

FEWEST = 8
"""Collectives of a group below which nothing is said."""
SHORTEST = 0.005
"""Seconds: less is the noise of scheduling."""
SHARE = 0.05
"""Of the time that the collectives span: a rank that costs less is not worth a word."""
AT_ONCE = 0.25
"""Share of the collectives, those that follow the one before soonest, that show the clocks."""


@dataclass(frozen=True, slots=True)
class Late:
    """One rank that the others of a group wait for again and again."""

    rank: int
    group: str
    times: int
    """Collectives in which it was late …"""
    of: int
    """… of so many."""
    seconds: float
    """How late, each time: the mean."""
    share: float
    """Of the time from the first to the last of them."""
    entry: Entry
    """The first of them that it came late to."""


def latest(dumps: Sequence[Dump]) -> Late | None:
    """The rank that costs its group most, if it costs enough and clearly more than any other."""
    found = [late for entries in _groups(dumps).values() for late in _of_group(entries)]
    found.sort(key=lambda late: -late.share)
    if not found or (len(found) > 1 and found[1].rank != found[0].rank and found[1].share > found[0].share / 2):
        return None
    return found[0]


def _groups(dumps: Sequence[Dump]) -> dict[str, dict[int, dict[int, Entry]]]:
    """Entries by group, sequence number and rank."""
    found: dict[str, dict[int, dict[int, Entry]]] = defaultdict(lambda: defaultdict(dict))
    for dump in dumps:
        for entry in dump.entries:
            if entry.peers is None and entry.created_ns:
                found[entry.group][entry.sequence][dump.rank] = entry
    return found


def _of_group(by_sequence: dict[int, dict[int, Entry]]) -> list[Late]:
    most = max((len(entries) for entries in by_sequence.values()), default=0)
    whole = [entries for _, entries in sorted(by_sequence.items()) if len(entries) == most]
    if most < 2 or len(whole) < FEWEST:
        return []
    span = _created(whole[-1]) - _created(whole[0])
    if span <= 0:
        return []
    lasts, at_once = [_last_two(entries) for entries in whole], _at_once(whole)
    return [late for rank in whole[0] if (late := _of_rank(rank, whole, lasts, at_once, span)) is not None]


def _created(entries: dict[int, Entry]) -> float:
    return median(entry.created_ns for entry in entries.values()) / 1e9


def _last_two(entries: dict[int, Entry]) -> tuple[int, float, float]:
    """The rank that entered last, when it did, and when the last of the others did, in seconds."""
    (when, last), (before, _) = nlargest(2, ((entry.created_ns, rank) for rank, entry in entries.items()))
    return last, when / 1e9, before / 1e9


def _of_rank(
    rank: int,
    whole: Sequence[dict[int, Entry]],
    lasts: Sequence[tuple[int, float, float]],
    at_once: Sequence[int],
    span: float,
) -> Late | None:
    if any(rank not in entries for entries in whole):
        return None
    leads = [
        entries[rank].created_ns / 1e9 - (before if last == rank else when)
        for entries, (last, when, before) in zip(whole, lasts, strict=True)
    ]
    clock = median(leads[at] for at in at_once)
    late = [(lead - clock, entries) for lead, entries in zip(leads, whole, strict=True) if lead - clock > SHORTEST]
    total = sum(seconds for seconds, _ in late)
    if len(late) < FEWEST / 2 or total < SHARE * span:
        return None
    return Late(rank, late[0][1][rank].group, len(late), len(whole), total / len(late), total / span, late[0][1][rank])


def _at_once(whole: Sequence[dict[int, Entry]]) -> list[int]:
    """Numbers of the collectives that some rank entered soonest after the one before, by its own clock."""
    gaps = sorted(
        (min(b[rank].created_ns - a[rank].created_ns for rank in b if rank in a), at)
        for at, (a, b) in enumerate(pairwise(whole), 1)
    )
    return [at for _, at in gaps[: max(1, int(len(gaps) * AT_ONCE))]]
