"""Rules on checks that compare ranks while the job runs: they name the fault themselves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, LIKELY, POSSIBLE, Finding
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.told import ranks_text
from meshwright.diagnose.watchdog.desync import BRANCH, LARGE, SAME, SCALAR, TRACE
from meshwright.diagnose.watchdog.facts import Differing, Print, Watchdog


def find_disagreements(facts: Facts) -> list[Finding]:
    """Fingerprints that differ, barriers that ranks never came to, connections that were closed."""
    known = facts.of(Watchdog)
    return [*_fingerprints(known), *_barriers(known), *_closed(known)]


def _fingerprints(known: Watchdog) -> Iterator[Finding]:
    """DETAIL compares before it runs, so what differs is the cause; by majority, never "the first rank is right"."""
    if not known.differing:
        return
    number = known.differing[0].prints[0].sequence
    same = [one for one in known.differing if one.prints[0].sequence == number]
    by_rank = _prints(same)
    views = {rank: (one.operation, one.shape, one.dtype) for rank, one in by_rank.items()}
    (common, often), *rest = Counter(views.values()).most_common()
    majority = bool(rest) and 2 * often > len(views)
    odd = tuple(sorted(rank for rank, view in views.items() if not majority or view != common))
    one = by_rank[odd[0]]
    other = next(each for rank, each in sorted(by_rank.items()) if rank != one.rank and views[rank] != views[one.rank])
    branch = _is_branch(one, other)
    yield Finding(
        "mismatched_collectives", ERROR, CERTAIN, odd,
        f"{ranks_text(odd).capitalize()}{' and the others' if majority else ''} run different collectives at the same "
        f"time: rank {one.rank} {_told(one)}, rank {other.rank} {_told(other)}.",
        tuple(evidence(pair.line, pair.prints[0].rank) for pair in same[:8]),
        TRACE, BRANCH if branch else SAME, earliest(one.line for one in same), weight=4,
    )  # fmt: skip


def _prints(same: list[Differing]) -> dict[int, Print]:
    """Each rank's fingerprint, best as itself prints it: PyTorch misreads another's where the tensors' number differs.

    (Tried with torch 2.13: a barrier is told as REDUCE, an all-reduce as GATHER; both then lack their shape.)
    """
    found = {pair.prints[1].rank: pair.prints[1] for pair in same}
    for rank, one in found.items():
        if one.shape is None:
            found[rank] = Print(rank, None, "", None, "")
    return {**found, **{pair.prints[0].rank: pair.prints[0] for pair in same}}


def _is_branch(one: Print, other: Print) -> bool:
    """A barrier, an object or a scalar on one side and something else on the other."""
    small = [each.operation.endswith("BARRIER") or (each.shape is not None and prod(each.shape) <= SCALAR)
             for each in (one, other)]  # fmt: skip
    large = [each.shape is not None and prod(each.shape) >= LARGE for each in (one, other)]
    return any(small) and (any(large) or one.operation != other.operation)


def _told(one: Print) -> str:
    if not one.operation:
        return "another one"
    shape = f" of {list(one.shape)}" if one.shape else ""
    number = f", its number {one.sequence}" if one.sequence else ""
    return f"{one.operation}{shape}{f' {one.dtype}' if one.dtype else ''}{number}"


def _barriers(known: Watchdog) -> Iterator[Finding]:
    """Who never came. Rank 0 collects; what others say of rank 0 follows from it having stopped."""
    first_hand = [one for one in known.barriers if one.reporter in (None, 0)] or known.barriers
    if not first_hand:
        return
    absent = tuple(sorted({rank for one in first_hand for rank in one.absent}))
    limit = next((one.limit_s for one in first_hand if one.limit_s is not None), None)
    only_told_of = known.barriers[0].reporter not in (None, 0) and first_hand is known.barriers
    yield Finding(
        "rank_conditional_collective", ERROR, POSSIBLE if only_told_of else LIKELY, absent,
        f"{ranks_text(absent).capitalize()} never came to a monitored barrier"
        f"{f' that others waited in for {limit:g} s' if limit is not None else ''}: dead, late, or in another branch.",
        tuple(evidence(one.line, one.line.rank) for one in first_hand[:8]),
        f"The logs of {ranks_text(absent)}: a traceback there is the cause, and this its consequence.",
        BRANCH, min((one.line.when for one in first_hand if one.line.when is not None), default=None), weight=2,
    )  # fmt: skip


def _closed(known: Watchdog) -> Iterator[Finding]:
    """A connection that the other end closed: its process had ended before."""
    if not known.closed:
        return
    ranks = tuple(sorted({one.rank for one in known.closed if one.rank is not None}))
    per_file: dict[str, int] = defaultdict(int)
    for one in known.closed:
        per_file[one.path] += 1
    by = f" ({ranks_text(ranks)} {'says' if len(ranks) == 1 else 'say'} so)" if ranks else ""
    yield Finding(
        "network_error", ERROR, POSSIBLE, (),
        f"Connections were closed from the other end{by}: a process there had ended or given up "
        "before, and its own log has the cause.",
        tuple(evidence(one) for one in known.closed[:4]),
        "The log of the rank that is not among these, or ended first.",
        ("Read the logs of the other ranks from before this time.",),
        earliest(known.closed), consequence=True,
    )  # fmt: skip
