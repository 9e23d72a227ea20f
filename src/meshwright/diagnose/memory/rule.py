"""Failed allocations on devices as Findings: one for each cause, with all ranks that it hit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, Evidence, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.memory.afterwards import went_on
from meshwright.diagnose.memory.capacity import savings, state_of
from meshwright.diagnose.memory.facts import Failure, MemoryFacts
from meshwright.diagnose.memory.job import job_of
from meshwright.diagnose.memory.verdict import Surroundings, Verdict, verdicts

MOST_JUDGED = 256
"""Failures that are judged one by one: more of them say the same."""
MOST_EVIDENCE = 8
SUREST = (CERTAIN, LIKELY, POSSIBLE)


def find_failures(facts: Facts) -> Iterator[Finding]:
    """Why device allocations failed; those that were tried again with success are remarks."""
    found = facts.of(MemoryFacts)
    around: dict[str, Surroundings] = {}
    groups: dict[tuple[str, str, bool], list[tuple[Failure, Verdict]]] = {}
    for one in sorted(found.failures, key=lambda one: (one.line.when is None, one.line.when or 0.0))[:MOST_JUDGED]:
        path = one.line.path
        if path not in around:
            around[path] = _surroundings(facts, path)
        caught = went_on(facts, one.line, any("Traceback (most recent" in text for text in one.before))
        for verdict in verdicts(one, around[path]):
            groups.setdefault((verdict.category, one.place.phase, caught), []).append((one, verdict))
    for (_, _, caught), same in groups.items():
        yield _caught(_finding(same, found, around)) if caught else _finding(same, found, around)


def _caught(one: Finding) -> Finding:
    return replace(
        one, severity=INFO, confidence=POSSIBLE,
        cause=f"An allocation failed and steps follow it, so that the program went on. {one.cause}",
    )  # fmt: skip


def _surroundings(facts: Facts, path: str) -> Surroundings:
    """What the failures of one job have in common, and what is known of it. Other jobs' logs may lie beside."""
    found, job = facts.of(MemoryFacts), job_of(facts, path)
    files = found.related(path)
    failures = [one for one in found.failures if one.line.path in files]
    failed = {one.line.rank for one in failures}
    devices = {one.oom.device for one in failures}
    several = len(found.ranks_of(files)) > 1
    only_first = several and devices == {0} and failed <= {0, None} and None not in failed
    resumed = any(line.path in files for line in found.resumed)
    return Surroundings(job, state_of(job), savings(job), only_first, resumed)


def _finding(
    same: Sequence[tuple[Failure, Verdict]], found: MemoryFacts, around: Mapping[str, Surroundings]
) -> Finding:
    judged, verdict = min(same, key=lambda pair: SUREST.index(pair[1].confidence))
    lines = [one.line for one, _ in same]
    shown: list[Evidence] = [evidence(line) for line in lines[:MOST_EVIDENCE]]
    told = next((one for one, _ in same if one.frames), None)
    if told is not None:
        text = ": ".join(one.text.strip() for one in told.frames)[:400]
        shown.insert(1, Evidence(told.line.path, text, told.frames[0].number, "traceback", told.line.rank))
    elif told := next((one for one, _ in same if one.place.text and one.place.text not in one.line.text), None):
        shown.insert(1, Evidence(told.line.path, told.place.text, event="traceback", rank=told.line.rank))
    ranks = tuple(sorted({line.rank for line in lines if line.rank is not None}))
    path = judged.line.path
    world = around[path].job.world or len(found.ranks_of(found.related(path)))
    cause = f"{_who(ranks, world, found.hosts.get((path, ranks[0]), '') if ranks else '')}{verdict.cause}"
    if len(ranks) > 1:
        cause = f"{verdict.cause} So it was on {len(ranks)}{_of(len(ranks), world)} ranks (the numbers are of rank "
        cause += f"{judged.line.rank})."
    return Finding(
        verdict.category, ERROR, verdict.confidence, ranks, cause, tuple(shown), verdict.confirm, verdict.change,
        min((line.when for line in lines if line.when is not None), default=None), weight=verdict.weight,
    )  # fmt: skip


def _who(ranks: Sequence[int], world: int, host: str) -> str:
    """`Rank 3 of 8 on node-a: `, where one rank is known; "" otherwise."""
    return f"Rank {ranks[0]}{_of(ranks[0] + 1, world)}{f' on {host}' if host else ''}: " if len(ranks) == 1 else ""


def _of(least: int, world: int) -> str:
    return f" of {world}" if world > 1 and world >= least else ""
