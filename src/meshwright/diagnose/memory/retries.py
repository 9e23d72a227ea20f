"""Retries of the allocator: cudaMalloc failed, the cache was flushed, and it went on. No failure, but lost time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.memory import advice
from meshwright.diagnose.memory.facts import MemoryFacts, Retry

MOST_EVIDENCE = 6


def find_retries(facts: Facts) -> Iterator[Finding]:
    """Counts that rise from step to step, and warnings of retries that no failure follows."""
    found = facts.of(MemoryFacts)
    counted = [one for one in found.retries if one.count is not None]
    if counted:
        yield from _counted(counted)
    single = [one for one in found.retries if one.count is None]
    if single and not found.failures:
        yield _finding(
            single, WARNING, LIKELY,
            f"{_times(len(single), 'allocation')} failed at first and went on after the cache was flushed: the "
            "device is nearly full, and this is not an out-of-memory error.",
        )  # fmt: skip


def _counted(counted: Sequence[Retry]) -> Iterator[Finding]:
    """The counter is cumulative, so its difference counts."""
    by_rank: dict[tuple[str, int | None], list[Retry]] = {}
    for one in counted:
        by_rank.setdefault((one.line.path, one.line.rank), []).append(one)
    ends = {rank: _ends([one.count or 0 for one in same]) for rank, same in by_rank.items()}
    rising = {rank: same for rank, same in by_rank.items() if ends[rank][1] > ends[rank][0]}
    if rising:
        steepest = max(rising, key=lambda rank: ends[rank][1] - ends[rank][0])
        same, (first, last) = rising[steepest], ends[steepest]
        yield _finding(
            [one for group in rising.values() for one in (group[0], group[-1])], WARNING, LIKELY,
            f"The allocator's retries rise from {first:,} to {last:,} over {len(same)} reports: memory is nearly full, "
            "and each retry flushes the cache and waits for the device.",
        )  # fmt: skip
    elif any(one.count for one in counted):
        most = max(counted, key=lambda one: one.count or 0)
        yield _finding(
            [most], INFO if len(counted) > len(by_rank) else WARNING, POSSIBLE,
            f"The allocator retried {most.count:,} times"
            f"{' and no more since' if len(counted) > len(by_rank) else ', over how many steps is not told'}.",
        )  # fmt: skip


def _ends(counts: Sequence[int]) -> tuple[int, int]:
    """The largest count of the first and of the last quarter: lines without a rank may be of several ranks in turn."""
    part = max(1, len(counts) // 4)
    return max(counts[:part]), max(counts[-part:])


def _times(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count > 1 else ''}"


def _finding(same: Sequence[Retry], severity: str, confidence: str, cause: str) -> Finding:
    ranks = {one.line.rank for one in same if one.line.rank is not None}
    return Finding(
        "alloc_retries", severity, confidence, tuple(sorted(ranks)), cause,
        tuple(evidence(one.line) for one in same[:MOST_EVIDENCE]),
        "torch.cuda.memory_stats()['num_alloc_retries'] before and after a step.", advice.RETRIES,
        min((one.line.when for one in same if one.line.when is not None), default=None), weight=1,
    )  # fmt: skip
