"""Failed allocations on devices as Findings: one for each cause, with all ranks that it hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, LIKELY, POSSIBLE, Evidence, Finding
from meshwright.diagnose.memory.capacity import savings, state_of
from meshwright.diagnose.memory.facts import Failure, MemoryFacts, evidence
from meshwright.diagnose.memory.job import Job, job_of
from meshwright.diagnose.memory.verdict import Surroundings, Verdict, verdicts

MOST_JUDGED = 256
"""Failures that are judged one by one: more of them say the same."""
MOST_EVIDENCE = 8
SUREST = (CERTAIN, LIKELY, POSSIBLE)


def find_failures(facts: Facts) -> Iterator[Finding]:
    """Why device allocations failed."""
    found = facts.of(MemoryFacts)
    around: dict[str, Surroundings] = {}
    groups: dict[tuple[str, str], list[tuple[Failure, Verdict]]] = {}
    for one in sorted(found.failures, key=lambda one: (one.line.when is None, one.line.when or 0.0))[:MOST_JUDGED]:
        path = one.line.path
        if path not in around:
            around[path] = _surroundings(found, job_of(facts, path))
        for verdict in verdicts(one, around[path]):
            groups.setdefault((verdict.category, one.place.phase), []).append((one, verdict))
    for same in groups.values():
        yield _finding(same)


def _surroundings(found: MemoryFacts, job: Job) -> Surroundings:
    """What the failures have in common, and what is known of the job."""
    failed = {one.line.rank for one in found.failures}
    devices = {one.oom.device for one in found.failures}
    several = len(found.ranks | {rank for rank in failed if rank is not None}) > 1
    only_first = several and devices == {0} and failed <= {0, None} and None not in failed
    return Surroundings(job, state_of(job), savings(job), only_first, bool(found.resumed))


def _finding(same: Sequence[tuple[Failure, Verdict]]) -> Finding:
    judged, verdict = min(same, key=lambda pair: SUREST.index(pair[1].confidence))
    lines = [one.line for one, _ in same]
    shown: list[Evidence] = [evidence(line) for line in lines[:MOST_EVIDENCE]]
    told = next((one for one, _ in same if one.place.text and one.place.text not in one.line.text), None)
    if told is not None:
        shown.insert(1, Evidence(told.line.path, told.place.text, event="traceback", rank=told.line.rank))
    ranks = tuple(sorted({line.rank for line in lines if line.rank is not None}))
    cause = verdict.cause
    if len(ranks) > 1:
        cause = f"{cause} So it was on {len(ranks)} ranks (the numbers are of rank {judged.line.rank})."
    return Finding(
        verdict.category, ERROR, verdict.confidence, ranks, cause, tuple(shown), verdict.confirm, verdict.change,
        min((line.when for line in lines if line.when is not None), default=None), weight=verdict.weight,
    )  # fmt: skip
