"""A person's words as a topic of a diagnosis: each kind of fault is weighed by the words that reports of it use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from meshwright.diagnose.described.reports import NOTHING, likeness
from meshwright.diagnose.described.sentences import QUOTED, SHORT, asks, complains, denies, spoken
from meshwright.diagnose.described.words import kinds
from meshwright.diagnose.ends.rule import is_unclear
from meshwright.diagnose.facts import Facts, cited
from meshwright.diagnose.finding import INFO, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.logs.read import PLAIN_LOG, UNKNOWN
from meshwright.diagnose.order import in_order
from meshwright.diagnose.topic import Topic

LONGEST_NOTE, LARGEST_NOTE = 200, 20_000
"""Lines, and characters. A longer text is a log, whose words are a program's."""
FEW = 3
"""Files. A note has a configuration or two beside it; a folder of more is a job's."""
LEAST = 0.02
"""Likelihood below which a kind is not told."""
CLEAR, CLEAR_OF_PROGRAM, CLEAR_OF_ANY = 0.15, 0.6, 0.8
"""What the first must have: where a person speaks of a trouble, of a few lines in which only a program does, and of a
few in which nobody does."""
IDLE = 0.4
"""Likelihood of what healthy jobs print from which nothing is told, nor from that of the first kind."""
MOST = 3
BESIDE_RULE = 0.6
"""What a kind must have to be told before one that a rule holds possible; where a program speaks, beside it, too."""
BY_NUMBERS = frozenset({"oom_capacity", "fragmentation", "alloc_retries"})
"""Kinds that the numbers of a text decide: where a rule has read those, its words say nothing more of them."""
_BINARY = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f]")


@dataclass
class Notes:
    """Lines of short texts by file; of a longer one, or one that is no text, only that it is."""

    lines: dict[str, list[Line]] = field(default_factory=dict)
    size: Counter[str] = field(default_factory=Counter)
    long: set[str] = field(default_factory=set)


def _collect(line: Line, facts: Facts) -> str:
    notes = facts.of(Notes)
    if line.path in notes.long:
        return ""
    notes.size[line.path] += len(line.text)
    if line.number > LONGEST_NOTE or notes.size[line.path] > LARGEST_NOTE or _BINARY.search(line.text):
        notes.lines.pop(line.path, None)
        notes.long.add(line.path)
    else:
        notes.lines.setdefault(line.path, []).append(line)
    return ""


def _rule(facts: Facts) -> Iterator[Finding]:
    alone = len(facts.inputs) <= FEW
    if not alone and any(one.severity != INFO for one in facts.found):
        return
    files = {one.path: one.kind for one in facts.inputs}
    settings = facts.settings if alone else []
    known = cited(one for one in facts.found if not is_unclear(one))
    for path, lines in facts.of(Notes).lines.items():
        rules = [one for one in facts.told_of(path) if not is_unclear(one)]
        if any(one.confidence != POSSIBLE for one in rules):
            continue
        # What a rule cites has its finding: it is read along with what else is there, and does not speak alone.
        own = [line.text for line in lines if (path, line.number) not in known]
        needed = _needed(own, lines, files.get(path, PLAIN_LOG) not in (PLAIN_LOG, UNKNOWN), bool(rules))
        if needed is not None:
            told = likeliest("\n".join([*(line.text for line in lines), *settings]), needed)
            yield from _findings(_beside(told, rules, needed) if rules else told, lines, rules)


def _beside(told: Mapping[str, float], rules: Sequence[Finding], needed: float) -> dict[str, float]:
    """Of the kinds that words tell, those to be told beside what rules hold possible of the same text."""
    by_program = needed > CLEAR
    known = {one.category for one in rules}
    if by_program or known & BY_NUMBERS:
        known |= BY_NUMBERS
    least = BESIDE_RULE if by_program else 0.0
    return {kind: odds for kind, odds in told.items() if kind not in known and odds >= least}


def _findings(told: Mapping[str, float], lines: Sequence[Line], rules: Sequence[Finding]) -> Iterator[Finding]:
    """Of each kind, with the line that is most like it. Words that are sure come before what a rule holds possible: it
    knows a message, and they what else was said."""
    near = [likeness(line.text) for line in lines] if told else []
    for place, (category, odds) in enumerate(told.items()):
        heaviest = max(range(len(lines)), key=lambda at: near[at][category])
        found = _finding(category, odds, place, lines[heaviest])
        if rules and odds >= BESIDE_RULE:
            first = in_order(rules)[0]
            found = replace(found, severity=first.severity, weight=first.weight + 1)
        yield found


def _needed(own: Sequence[str], lines: Sequence[Line], known: bool, ruled: bool) -> float | None:
    """How likely the first kind must be for a text to be told of; None: it is not asked. `own` are those of its lines
    that no rule cites; `known` is whether it is a known program's, `ruled` whether a rule says anything of it."""
    few = len(lines) <= SHORT
    if complains(own, len(lines), known):
        return CLEAR
    if not few:
        return CLEAR_OF_ANY if len(lines) <= QUOTED and not known and spoken(own) and not denies(own) else None
    if ruled and (asks(line.text for line in lines) or not known):
        return CLEAR_OF_PROGRAM
    if len(own) < len(lines) and not spoken(own):
        return None
    if asks(own):
        return CLEAR_OF_PROGRAM
    return None if denies(own) or (known and not spoken(own)) else CLEAR_OF_ANY


def likeliest(text: str, needed: float = CLEAR) -> dict[str, float]:
    """The categories that a text is most like, the likeliest first; none where none is as likely as `needed`."""
    odds = likeness(text)
    idle = odds.pop(NOTHING, 0.0)
    best = sorted(odds, key=lambda category: -odds[category])[:MOST]
    if odds[best[0]] < needed or idle > min(IDLE, odds[best[0]]):
        return {}
    return {category: odds[category] for category in best if odds[category] >= LEAST}


def _finding(category: str, odds: float, place: int, heaviest: Line) -> Finding:
    """Of the category in that place of the order, with the line that is most like it."""
    return Finding(
        category=category,
        severity=WARNING,
        confidence=POSSIBLE,
        ranks=(),
        cause=f"{heaviest.path} reads like {kinds()[category]['what']} ({odds:.0%} by its words).",
        evidence=(Evidence(heaviest.path, heaviest.text.strip()[:400], heaviest.number),),
        confirm=("What the job itself left: its logs of all ranks, Flight Recorder dumps, traces, its configuration."),
        change=tuple(kinds()[category]["change"]),
        weight=-100 - place,
    )


DESCRIBED = Topic("words", rules=(_rule,), collect=_collect, last_resort=True)
