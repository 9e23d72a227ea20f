"""The members of each process group side by side: what each of them waited for when its watchdog gave up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from meshwright.diagnose.watchdog.facts import Group, State, Timeout, Watchdog

UNKNOWN = Group("", "a group that no line names", sure=False)


@dataclass
class Member:
    """One rank of one group."""

    who: int
    timeouts: list[Timeout] = field(default_factory=list)
    """The earliest collective first."""
    states: list[State] = field(default_factory=list)

    @property
    def first(self) -> Timeout | None:
        """The earliest collective that it waited in."""
        return self.timeouts[0] if self.timeouts else None

    @property
    def enqueued(self) -> int | None:
        """The last collective that it called."""
        return max((one.enqueued for one in self.states), default=None)

    @property
    def idle(self) -> bool:
        """Whether it had completed all that it called."""
        return bool(self.states) and all(one.completed == one.enqueued for one in self.states)


@dataclass
class Table:
    """One group of one incident."""

    group: Group
    sure: bool = True
    """Whether every line is of this group for sure, and it is one group on all ranks."""
    members: dict[int, Member] = field(default_factory=dict)

    def member(self, who: int) -> Member:
        """The member's row; made where there is none."""
        return self.members.setdefault(who, Member(who))

    def waiting(self) -> list[Member]:
        """Members that timed out in a collective whose number is told, in the order of ranks."""
        found = [one for _, one in sorted(self.members.items())]
        return [one for one in found if one.first is not None and one.first.sequence is not None]


def tables(known: Watchdog) -> list[Table]:
    """One for each group of the first incident in which a watchdog gave up."""
    timeouts, states = _first_incident(_unique(known.timeouts), known.states)
    groups = dict.fromkeys(one.place.group for one in _both(timeouts, states) if one.place.group is not None)
    found: dict[str, Table] = {}
    for one in timeouts:
        group, sure = _group_of(one, states, list(groups))
        if one.place.who is not None:
            table = found.setdefault(group.key, Table(group))
            table.sure &= sure and group.sure
            table.member(one.place.who).timeouts.append(one)
    for state in states:
        if state.place.group is not None and state.place.who is not None and state.place.group.key in found:
            found[state.place.group.key].member(state.place.who).states.append(state)
    for table in found.values():
        for member in table.members.values():
            member.timeouts.sort(key=lambda one: (one.sequence is None, one.sequence or 0))
    return [table for table in found.values() if _is_one_group(table, found)]


def _both(timeouts: Sequence[Timeout], states: Sequence[State]) -> list[Timeout | State]:
    return [*timeouts, *states]


def _unique(timeouts: Iterable[Timeout]) -> list[Timeout]:
    """Each timeout once: it is printed by the watchdog and again by the exception, which may name the group."""
    found: dict[tuple[object, ...], Timeout] = {}
    for one in timeouts:
        key = (one.line.path, one.place.rank, one.place.group_rank, one.sequence, one.operation, one.elements_in,
               one.ran_s)  # fmt: skip
        before = found.get(key)
        if before is None:
            found[key] = one
        elif before.place.group is None and one.place.group is not None:
            found[key] = replace(before, place=replace(before.place, group=one.place.group))
    return list(found.values())


def _first_incident(timeouts: Sequence[Timeout], states: Sequence[State]) -> tuple[list[Timeout], list[State]]:
    """A job that was started again gives up again, at least one timeout later: only the first time is judged."""
    moments = [one.line.when for one in timeouts if one.line.when is not None]
    if not moments:
        return list(timeouts), list(states)
    end = min(moments) + max((one.limit_s for one in timeouts), default=0.0)
    return (
        [one for one in timeouts if one.line.when is None or one.line.when <= end],
        [one for one in states if one.line.when is None or one.line.when <= end],
    )


def _group_of(one: Timeout, states: Sequence[State], groups: Sequence[Group]) -> tuple[Group, bool]:
    """The group of a timeout and whether that is sure. Most forms leave it out, and the state that follows has it."""
    if one.place.group is not None:
        return one.place.group, True
    same = [
        state for state in states
        if state.line.path == one.line.path and state.place.rank == one.place.rank and state.at == one.sequence
        and state.place.group is not None and state.place.group_rank == one.place.group_rank
    ]  # fmt: skip
    if same and one.sequence is not None:
        nearest = min(same, key=lambda state: abs(state.line.number - one.line.number))
        return nearest.place.group or UNKNOWN, True
    return (groups[0], False) if len(groups) == 1 else (UNKNOWN, False)


def _is_one_group(table: Table, found: dict[str, Table]) -> bool:
    """Whether the members can be of one group: no two of them have the same rank in it."""
    if table.group is UNKNOWN and len(found) > 1:
        return False
    places: dict[int, set[int]] = defaultdict(set)
    for member in table.members.values():
        for one in _both(member.timeouts, member.states):
            if one.place.group_rank is not None and one.place.rank is not None:
                places[one.place.group_rank].add(one.place.rank)
    return all(len(ranks) == 1 for ranks in places.values())
