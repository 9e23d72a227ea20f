"""Sizes in the words of people: reports rarely hold a whole log. What they say is "possible" and no more."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, POSSIBLE, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.memory import advice
from meshwright.diagnose.memory.facts import MOST, MemoryFacts, Told
from meshwright.diagnose.memory.sizes import GIB, SIZE, in_bytes, shown

SAME = 0.01
"""Two printed sizes that differ by less are the same tensor's, and its gradient's."""
_SAVED = Late(rf"{SIZE}.{{0,80}}\bsav(?:e|ed|ing)\b.{{0,40}}checkpoint.{{0,80}}?{SIZE}")
_LOGITS = Late(rf"\blogits\b.{{0,60}}?\b{SIZE}")
_TWICE = Late(rf"{SIZE} (?:block|tensor|buffer).{{0,30}}?\b{SIZE} (?:request|allocation).{{0,40}}backward")


def look(line: Line, found: MemoryFacts) -> bool:
    """Adds the sizes that a sentence compares; whether it does."""
    text = line.text
    if len(found.told) >= MOST:
        return False
    if (match := _SAVED.search(text)) and in_bytes(*match.groups()[2:]) > in_bytes(*match.groups()[:2]):
        sizes = in_bytes(*match.groups()[:2]), in_bytes(*match.groups()[2:])
        found.told.append(Told(line, "oom_checkpoint", sizes))
    elif (match := _LOGITS.search(text)) and in_bytes(*match.groups()) >= GIB:
        found.told.append(Told(line, "oom_logits", (in_bytes(*match.groups()),)))
    elif match := _TWICE.search(text):
        block, request = in_bytes(*match.groups()[:2]), in_bytes(*match.groups()[2:])
        if request >= GIB and abs(block - request) <= SAME * request:
            found.told.append(Told(line, "oom_logits", (block, request)))
    return bool(found.told) and found.told[-1].line is line


def find_told(facts: Facts) -> Iterator[Finding]:
    """What the sentences say."""
    for one in facts.of(MemoryFacts).told:
        first, last = shown(one.sizes[0]), shown(one.sizes[-1])
        change: tuple[str, ...] = advice.LOGITS
        if one.category == "oom_checkpoint":
            cause, change = (
                f"Memory in use is said to rise from {first} to {last} when a checkpoint is saved.",
                advice.SAVE,
            )
        elif len(one.sizes) > 1:
            cause = (
                f"A block of {first} is alive and the backward pass asks for its like, as of logits and their gradient."
            )
        else:
            cause = f"Logits are said to take {first}; the loss needs up to three times that."
        ranks = () if one.line.rank is None else (one.line.rank,)
        yield Finding(
            one.category, ERROR, POSSIBLE, ranks, cause, (evidence(one.line),),
            "A memory snapshot at the peak.", change, one.line.when, weight=1,
        )  # fmt: skip
