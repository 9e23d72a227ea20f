"""A diagnosis: what was read, what is wrong, what was checked and what was missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from meshwright.diagnose.facts import Facts, Input
from meshwright.diagnose.finding import Finding
from meshwright.diagnose.inputs import Progress, read_inputs
from meshwright.diagnose.logs.read import NOTHING_KNOWN, PLAIN_LOG
from meshwright.diagnose.order import in_order
from meshwright.diagnose.topic import Topic
from meshwright.diagnose.topics import TOPICS
from meshwright.spec.errors import RequestError

READABLE = (
    "logs", "Flight Recorder dumps", "Kineto traces", "memory snapshots", "nccl-tests output", "metrics",
    "launch commands and configurations",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer about one job."""

    inputs: tuple[Input, ...]
    findings: tuple[Finding, ...]
    """The most important first."""
    checked: tuple[str, ...]
    missing: tuple[str, ...]


def diagnose(
    paths: Sequence[Path], topics: Sequence[Topic] = TOPICS, progress: Progress = lambda done, total: None
) -> Diagnosis:
    """What is wrong with the job that left these files; `progress` is told bytes.

    Raises RequestError: nothing in them can be read.
    """
    facts = read_inputs(paths, topics, progress)
    found = judge(facts, topics)
    if all(one.problem for one in found.inputs):
        told = "; ".join(f"{one.path}: {one.problem}" for one in facts.inputs[:3])
        raise RequestError(f"Nothing here can be read{f' ({told})' if told else ''}.", READABLE)
    return found


def judge(facts: Facts, topics: Sequence[Topic] = TOPICS) -> Diagnosis:
    """What the rules say of facts that were read."""
    found = [finding for topic in topics if not topic.last_resort for rule in topic.rules for finding in rule(facts)]
    for topic in (one for one in topics if one.last_resort):
        facts.found = tuple(found)
        found += [finding for rule in topic.rules for finding in rule(facts)]
    return Diagnosis(
        _used(facts.inputs, found),
        in_order(found),
        tuple(line for topic in topics for line in topic.checked(facts)),
        tuple(line for topic in topics for line in topic.missing(facts)),
    )


def _used(inputs: Iterable[Input], findings: Iterable[Finding]) -> tuple[Input, ...]:
    """The inputs; a text that is evidence of something is a log, though nothing else is known in it."""
    cited = {evidence.path for one in findings for evidence in one.evidence}
    return tuple(
        replace(one, kind=PLAIN_LOG, problem="") if one.problem == NOTHING_KNOWN and one.path in cited else one
        for one in inputs
    )
