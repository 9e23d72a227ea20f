"""Memory as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import Finding
from meshwright.diagnose.logs.line import rank_in_path
from meshwright.diagnose.memory.collect import collect
from meshwright.diagnose.memory.facts import MOST, MemoryFacts
from meshwright.diagnose.memory.host_memory import find_growth, find_kills
from meshwright.diagnose.memory.job import job_of, looks_like_config
from meshwright.diagnose.memory.prose import find_told
from meshwright.diagnose.memory.retries import find_retries
from meshwright.diagnose.memory.rule import find_failures
from meshwright.diagnose.memory.snapshot.read import looks_like_snapshot, read_snapshot
from meshwright.diagnose.memory.snapshot.rule import Snapshots, find_in_snapshots, judge_snapshot
from meshwright.diagnose.topic import Document, Topic
from meshwright.spec.errors import RequestError


def _read_snapshot(parsed: Any, path: str, facts: Facts) -> int | None:
    facts.of(Snapshots).all.append(read_snapshot(parsed, path))
    return rank_in_path(path)


def _read_config(parsed: Any, path: str, facts: Facts) -> None:
    configs = facts.of(MemoryFacts).configs
    if len(configs) < MOST:
        configs[path] = parsed


def _listings(facts: Facts) -> Iterator[Finding]:
    """Segments that somebody printed, as snapshots without a history."""
    for line, parsed in facts.of(MemoryFacts).listings:
        try:
            yield from judge_snapshot(read_snapshot(parsed, line.path, line.number))
        except RequestError:
            continue


def _checked(facts: Facts) -> Iterator[str]:
    found, snapshots = facts.of(MemoryFacts), facts.of(Snapshots).all
    if found.contexts:
        yield (
            f"{len(found.contexts)} logs for failed allocations ({len(found.failures)} found), allocator retries "
            f"({len(found.retries)}), and killed processes ({len(found.kills)})"
        )
    if snapshots:
        events = sum(len(trace) for one in snapshots for trace in one.traces)
        skipped = sum(one.skipped for one in snapshots)
        broken = f"; {skipped:,} entries could not be read" if skipped else ""
        yield f"{len(snapshots)} memory snapshots, {events:,} events: fragmentation, capacity, what is kept{broken}"


def _missing(facts: Facts) -> Iterator[str]:
    found = facts.of(MemoryFacts)
    if not found.failures:
        return
    if not facts.of(Snapshots).all:
        yield "a memory snapshot of the failure (torch.cuda.memory._record_memory_history, _dump_snapshot)"
    job = job_of(facts, found.failures[0].line.path)
    if job.config is None:
        yield "the model's config.json, to tell its state and its logits from a request's size"
    elif not (job.batch and job.sequence):
        yield "the launch command, for the micro-batch and the sequence length"


MEMORY = Topic(
    "memory", rules=(find_failures, find_told, find_kills, find_growth, find_retries, find_in_snapshots, _listings),
    checked=_checked, missing=_missing, collect=collect,
    documents=(
        Document("memory snapshot", looks_like_snapshot, _read_snapshot),
        Document("model configuration", looks_like_config, _read_config),
    ),
)  # fmt: skip
