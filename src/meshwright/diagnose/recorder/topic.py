"""Dumps of the Flight Recorder as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import Evidence, Finding
from meshwright.diagnose.metrics.series import runs
from meshwright.diagnose.recorder.ahead import read_ahead
from meshwright.diagnose.recorder.read import Dump, DumpError, looks_like_dump, read_dump
from meshwright.diagnose.recorder.rule import find_hangs
from meshwright.diagnose.recorder.waits import members
from meshwright.diagnose.topic import Document, Topic

MOST_NAMED = 16


@dataclass
class Dumps:
    """Of one job, by rank."""

    by_rank: dict[int, Dump] = field(default_factory=dict)

    def all(self) -> list[Dump]:
        """In the order of ranks."""
        return [self.by_rank[rank] for rank in sorted(self.by_rank)]


def _known(parsed: Any) -> bool:
    return isinstance(parsed, Dump) or looks_like_dump(parsed)


def _read(parsed: Any, path: str, facts: Facts) -> int:
    """Of what was parsed, or of a dump that was read ahead."""
    dump = parsed if isinstance(parsed, Dump) else read_dump(parsed, path)
    known = facts.of(Dumps).by_rank
    if dump.rank in known:
        raise DumpError(f"another dump of rank {dump.rank} was read already: {known[dump.rank].path}")
    known[dump.rank] = dump
    return dump.rank


def _hangs(facts: Facts) -> list[Finding]:
    dumps = facts.of(Dumps).all()
    return [_with_log(one, facts) for one in find_hangs(dumps)] if dumps else []


def _with_log(one: Finding, facts: Facts) -> Finding:
    """… with the last step of the job that its logs tell, and the last line that each culprit has logged."""
    said = [
        Evidence(path, f"the last that rank {rank} logged: {text.strip()[:200]}", number, rank=rank)
        for rank in one.ranks[:MOST_NAMED]
        if rank in facts.last_lines
        for path, number, text in [facts.last_lines[rank]]
    ]
    return replace(one, evidence=(*one.evidence, *_step(facts), *said))


def _step(facts: Facts) -> Iterator[Evidence]:
    counted = [(run.points[-1], run) for run in runs(facts) if run.counted and run.points]
    if counted:
        point, run = max(counted, key=lambda pair: pair[0].step)
        yield Evidence(run.path, f"the last step that was logged: {point.step:,}", point.line, rank=run.rank)


def _checked(facts: Facts) -> Iterator[str]:
    dumps = facts.of(Dumps).all()
    if dumps:
        entries = sum(dump.count for dump in dumps)
        yield (
            f"{len(dumps)} dumps, {entries:,} collectives and messages, {len(members(dumps)):,} groups: operations, "
            "sizes and dtypes of the same collective; who waits for whom"
        )


def _missing(facts: Facts) -> Iterator[str]:
    """Ranks that belong to a group and left no dump."""
    dumps = facts.of(Dumps)
    absent = sorted({rank for ranks in members(dumps.all()).values() for rank in ranks} - set(dumps.by_rank))
    if absent:
        more = f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
        yield f"dumps of ranks {', '.join(map(str, absent[:MOST_NAMED]))}{more}"


RECORDER = Topic(
    "hangs", rules=(_hangs,), checked=_checked, missing=_missing,
    documents=(Document("flight recorder dump", _known, _read),), ahead=read_ahead,
)  # fmt: skip
