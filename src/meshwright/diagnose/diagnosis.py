"""A diagnosis: what was read, what is wrong, what was checked and what was missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.diagnose.facts import Facts, Input
from meshwright.diagnose.finding import Finding
from meshwright.diagnose.inputs import read_inputs
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


def diagnose(paths: Sequence[Path], topics: Sequence[Topic] = TOPICS) -> Diagnosis:
    """What is wrong with the job that left these files. Raises RequestError: nothing in them can be read."""
    facts = read_inputs(paths, topics)
    if all(one.problem for one in facts.inputs):
        told = "; ".join(f"{one.path}: {one.problem}" for one in facts.inputs[:3])
        raise RequestError(f"Nothing here can be read{f' ({told})' if told else ''}.", READABLE)
    return judge(facts, topics)


def judge(facts: Facts, topics: Sequence[Topic] = TOPICS) -> Diagnosis:
    """What the rules say of facts that were read."""
    found = in_order(finding for topic in topics for rule in topic.rules for finding in rule(facts))
    return Diagnosis(
        tuple(facts.inputs),
        found,
        tuple(line for topic in topics for line in topic.checked(facts)),
        tuple(line for topic in topics for line in topic.missing(facts)),
    )
