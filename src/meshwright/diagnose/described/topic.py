"""A person's words as a topic of a diagnosis: each kind of fault is weighed by the words that reports of it use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from meshwright.diagnose.described.words import weights, words
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.topic import Topic

LONGEST_NOTE = 200
"""Lines. A longer text is a log, whose words are a program's."""
ENOUGH = 4
"""Weight below which nothing is said: one term of its own, or two that support each other."""
MOST = 3
_MACHINE = re.compile(
    r"\bNCCL (?:INFO|WARN)\b|\.cpp:\d+\]|WorkNCCL|\b(?:INFO|DEBUG|WARNING|ERROR):|\[(?:INFO|"
    r"WARNING|ERROR)\]|^\s*(?:File \"|at 0x)"
)
_PREFIX = re.compile(r"^\s*(?:\[[^\]]{0,40}\]:?\s*)+")


@dataclass
class Notes:
    """Lines of short texts by file; of a longer one only that it is long."""

    lines: dict[str, list[Line]] = field(default_factory=dict)
    long: set[str] = field(default_factory=set)


def _collect(line: Line, facts: Facts) -> str:
    notes = facts.of(Notes)
    if line.number > LONGEST_NOTE:
        notes.lines.pop(line.path, None)
        notes.long.add(line.path)
    elif line.path not in notes.long:
        notes.lines.setdefault(line.path, []).append(line)
    return ""


def _rule(facts: Facts) -> Iterator[Finding]:
    for path, lines in facts.of(Notes).lines.items():
        told = "\n".join(_PREFIX.sub("", line.text) for line in lines if not _MACHINE.search(line.text))
        weighed = weights(told, "\n".join(facts.settings))
        best = sorted(weighed.items(), key=lambda item: -item[1])
        for category, weight in best[:MOST]:
            if weight >= ENOUGH:
                yield _finding(category, weight, path, lines)


def _finding(category: str, weight: int, path: str, lines: list[Line]) -> Finding:
    patterns = words()[category]
    heaviest = max(lines, key=lambda line: sum(w for w, pattern in patterns if pattern.search(line.text)))
    return Finding(
        category=category,
        severity=WARNING,
        confidence=POSSIBLE,
        ranks=(),
        cause=f"The words in {path} describe {category.replace('_', ' ')}.",
        evidence=(Evidence(path, heaviest.text.strip()[:400], heaviest.number),),
        confirm=("What the job itself left: its logs of all ranks, Flight Recorder dumps, traces, its configuration."),
        weight=weight - 100,
    )


DESCRIBED = Topic("words", rules=(_rule,), collect=_collect, last_resort=True)
