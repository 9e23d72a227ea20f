"""Who waits for whom: an edge from a rank to a member of a group that has not entered what the rank waits in.

Culprits are waited for and wait for nobody: those that wait themselves are held up by others. Nothing needs to be known
of what the groups are for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.diagnose.recorder.read import Dump, Entry


@dataclass(frozen=True, slots=True)
class Wait:
    """`rank` waits in `entry` for `member`."""

    rank: int
    member: int
    entry: Entry


def members(dumps: Sequence[Dump]) -> dict[str, tuple[int, ...]]:
    """Ranks of every group: as a dump says; else those that used it."""
    used: dict[str, set[int]] = defaultdict(set)
    for dump in dumps:
        for group, _ in dump.reached:
            used[group].add(dump.rank)
    found = {name: tuple(sorted(ranks)) for name, ranks in used.items()}
    for dump in dumps:
        found |= dump.groups
    return found


def waits(dumps: Sequence[Dump]) -> list[Wait]:
    """All edges, of the first thing that each rank waits in with each member."""
    groups, by_rank = members(dumps), {dump.rank: dump for dump in dumps}
    reached = {rank: dump.reached for rank, dump in by_rank.items()}
    found: dict[tuple[int, int], Wait] = {}
    for rank, dump in sorted(by_rank.items()):
        for entry in dump.entries:
            if entry.done:
                continue
            for member in _others(entry, rank, groups):
                if reached.get(member, {}).get((entry.group, entry.peers), -1) < entry.sequence:
                    found.setdefault((rank, member), Wait(rank, member, entry))
    return list(found.values())


def culprits(edges: Sequence[Wait]) -> tuple[int, ...]:
    """Ranks that are waited for and wait for nobody."""
    waiting = {edge.rank for edge in edges}
    return tuple(sorted({edge.member for edge in edges} - waiting))


def _others(entry: Entry, rank: int, groups: Mapping[str, tuple[int, ...]]) -> list[int]:
    """The other members that an entry needs."""
    ranks = groups.get(entry.group, ())
    if entry.peers is None:
        return [member for member in ranks if member != rank]
    return [ranks[peer] for peer in entry.peers if peer < len(ranks) and ranks[peer] != rank]
