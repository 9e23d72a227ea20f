"""A person's words as a topic of a diagnosis: each kind of fault is weighed by the words that reports of it use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from meshwright.diagnose.described.reports import likeness
from meshwright.diagnose.described.words import complaint, kinds, weights, words
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.logs.read import PLAIN_LOG, UNKNOWN
from meshwright.diagnose.topic import Topic

LONGEST_NOTE = 200
"""Lines. A longer text is a log, whose words are a program's."""
SHORT = 6
"""Lines up to which a sentence need not complain to be read as one."""
QUOTED, MOSTLY = 15, 0.5
"""People quote a few lines of a log; of a longer text, at least this share must be sentences."""
FEW = 4
"""Files. A note has a configuration or two beside it; a folder of more is a job's."""
ENOUGH = 4
"""Weight below which nothing is said: one term of its own, or two that support each other."""
TERM = 2.0
"""Nats that a weight of 1 in `words.toml` counts for beside the likeness to reports."""
CLEAR = 8.0
"""Nats above the median of all kinds from which likeness alone is told."""
MOST = 3
_MACHINE = re.compile(
    r"\bNCCL (?:INFO|WARN)\b|\.cpp:\d+\]|WorkNCCL|\b(?:INFO|DEBUG|WARNING|ERROR):|"
    r"\[(?:INFO|WARNING|ERROR)\]|^\((?:raylet|pid=)|^\s*\[[IWEF]\d{3,4} |deprecated|"
    r"torch[./]distributed[./]elastic|ChildFailedError|slurmstepd:|"
    r"^\s*(?:rank|exitcode|error_file|traceback|time|host)\s+:|"
    r"^\s*(?:#|File \"|at 0x)|\bACSCtl:|^\s*\[ *\d{1,9}\.\d{6}\]|"
    r"^\s*(?:Collecting|Downloading|Requirement already|Installing collected|Successfully (?:un)?installed) |"
    r":\d+: \w*Warning: |^\s*\|.*\|\s*$|^\s*\{\"|^\s*(?:Normal|Warning)\s+\w+\s+\d+[smhd]\s|"
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|^wandb: |\brequires \S+[=<>]=|^\[notice\]|^\s*[IWE]\d{4} \d\d:\d\d|"
    r"^\s*(?:INFO|DEBUG|WARNING|ERROR) \d\d-\d\d \d\d:|\berrors?(?: count)? *[:=] *0\s*$"
)
"""Lines that only programs write."""
FEWEST_WORDS, MANY_WORDS, PLAIN = 4, 7, 0.4
"""A sentence has this many words, and at least this share of what is between its blanks are plain words."""
_WORD = re.compile(r"[(\"'`*_]*[A-Za-z][A-Za-z'-]*[)\"'`*_]*[.,;?!]*$|[\u4e00-\u9fff]")
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


def _complains(texts: list[str], lines: int, known: bool) -> bool:
    """Whether a person speaks of a trouble in what a file of so many lines has left besides a program's lines.

    Of a file whose kind is known a whole sentence must; and of more lines than people quote, most are sentences.
    """
    sentences = [text for text in texts if is_sentence(text)]
    if not sentences or (lines > QUOTED and len(sentences) < MOSTLY * lines):
        return False
    if known:
        return any(complaint().search(text) and plain_words(text) >= MANY_WORDS for text in sentences)
    told_in_full = lines <= SHORT and any(plain_words(text) >= MANY_WORDS for text in sentences)
    return told_in_full or bool(complaint().search("\n".join(texts)))


def plain_words(text: str) -> int:
    """How many words without numbers and signs it has."""
    return sum(bool(_WORD.match(part)) for part in text.split())


def is_sentence(text: str) -> bool:
    """Whether a person might have written it: programs write names, numbers and signs between their words."""
    parts, plain = text.split(), plain_words(text)
    return (plain >= FEWEST_WORDS or len(text) > len(text.encode("ascii", "ignore")) + FEWEST_WORDS) and (
        plain >= PLAIN * len(parts)
    )


def _rule(facts: Facts) -> Iterator[Finding]:
    kinds = {one.path: one.kind for one in facts.inputs}
    for path, lines in facts.of(Notes).lines.items():
        if path in facts.explained or "metrics" in kinds.get(path, ""):
            continue
        own = [line for line in lines if (path, line.number) not in facts.cited and not _MACHINE.search(line.text)]
        texts = [_PREFIX.sub("", line.text) for line in own]
        told = "\n".join(texts)
        known = kinds.get(path, PLAIN_LOG) not in (PLAIN_LOG, UNKNOWN)
        if not _complains(texts, len(lines), known):
            continue
        # What programs wrote, and a configuration, are circumstances of what a person says.
        settings = facts.settings if len(facts.inputs) <= FEW else []
        around = [*settings, *(line.text for line in lines if _MACHINE.search(line.text))]
        for place, category in enumerate(likeliest(told, "\n".join(around))):
            yield _finding(category, place, path, lines)


def likeliest(told: str, around: str = "") -> list[str]:
    """The categories that a text is most like, by its own words and by what public reports of each kind share."""
    hand, alike = weights(told, around), likeness(f"{told}\n{around}")
    usual = median(alike.values())
    found = {
        category: near + TERM * hand.get(category, 0)
        for category, near in alike.items()
        if hand.get(category, 0) >= ENOUGH or near - usual >= CLEAR
    }
    return sorted(found, key=lambda category: -found[category])[:MOST]


def _finding(category: str, place: int, path: str, lines: list[Line]) -> Finding:
    patterns = words().get(category, ())
    heaviest = max(lines, key=lambda line: sum(w for w, pattern in patterns if pattern.search(line.text)))
    return Finding(
        category=category,
        severity=WARNING,
        confidence=POSSIBLE,
        ranks=(),
        cause=f"{path} reads like {kinds()[category]['what']}.",
        evidence=(Evidence(path, heaviest.text.strip()[:400], heaviest.number),),
        confirm=("What the job itself left: its logs of all ranks, Flight Recorder dumps, traces, its configuration."),
        change=tuple(kinds()[category]["change"]),
        weight=-100 - place,
    )


DESCRIBED = Topic("words", rules=(_rule,), collect=_collect, last_resort=True)
