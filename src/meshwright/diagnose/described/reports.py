"""How near a text is to public reports of each kind of fault: multinomial logistic regression over words.

A text's features are its words (rare ones count more: tf-idf) and the patterns of `words.toml` that it has, each group
scaled to length 1. `reports.json` holds the weights; `scripts/reports.py` fits them to `scripts/reports.jsonl`, the
words of issues whose cause is known or inferred, of descriptions written for it, and of what healthy jobs print.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from meshwright.diagnose.described.words import marks

NOTHING = "nothing"
"""The category of what healthy jobs print."""
SHARE_OF_MARKS = 0.7
"""Length of the patterns' group beside 1 of the words'."""
UNIT = 0.1
"""What a weight of 1 in the file means, in nats."""
_TERM = re.compile(r"[a-z][a-z0-9]+|(?<![\w.])-?\d{1,3}(?![\w.])|[\u4e00-\u9fff]{2}")
_CAMEL = re.compile(r"([a-z])([A-Z])")
_ENDING = re.compile(r"(?:ing|ed|es|s)$")
_COMMON = frozenset(
    "the a an of to in is it and for on with this that i we be are was as at by from or when my".split()
)


@dataclass(frozen=True, slots=True)
class Feature:
    """A term or a pattern."""

    rarity: float
    """Its inverse document frequency, ln((1 + reports) / (1 + those that have it)) + 1."""
    weights: Mapping[int, int]
    """By place of the category, in `UNIT`s."""


@dataclass(frozen=True, slots=True)
class Reports:
    """What was learned."""

    kinds: Mapping[str, int]
    """Reports of each category."""
    bias: tuple[int, ...]
    """Of each category, in `UNIT`s."""
    terms: Mapping[str, Feature]
    marks: Mapping[str, Feature]

    def likeness(self, terms: Iterable[str], marks: Iterable[str]) -> dict[str, float]:
        """How likely each category is for a text with these words and patterns, from 0 to 1; together 1."""
        scores = [UNIT * one for one in self.bias]
        for share, group, own in ((1.0, self.terms, terms), (SHARE_OF_MARKS, self.marks, marks)):
            found = [group[one] for one in own if one in group]
            length = math.sqrt(math.fsum(one.rarity**2 for one in found))
            for one in found:
                for place, weight in one.weights.items():
                    scores[place] += share * one.rarity / length * UNIT * weight
        most = max(scores)
        odds = [math.exp(one - most) for one in scores]
        return {kind: one / sum(odds) for kind, one in zip(self.kinds, odds, strict=True)}


def terms_of(text: str) -> set[str]:
    """Words of a text without their endings, and numbers of up to three digits (error 12, exit code -9)."""
    plain = _CAMEL.sub(r"\1 \2", text).lower().replace("_", " ")
    return {_ENDING.sub("", one) if len(one) > 5 else one for one in _TERM.findall(plain) if one not in _COMMON}


def rarity(having: int, reports: int) -> float:
    """Inverse document frequency of a feature that so many of the reports have (scikit-learn's smoothed form)."""
    return math.log((1 + reports) / (1 + having)) + 1


def likeness(text: str) -> dict[str, float]:
    """How likely each category is for a text, by its words alone, from 0 to 1; together 1."""
    return reports().likeness(terms_of(text), marks(text))


@cache
def reports() -> Reports:
    """What comes with the package."""
    return of_document(json.loads(resources.files(__package__).joinpath("reports.json").read_text(encoding="utf-8")))


def of_document(read: Mapping[str, Any]) -> Reports:
    """What `scripts/reports.py` has learned."""
    kinds = read["kinds"]
    total = sum(kinds.values())
    return Reports(kinds, tuple(read["bias"]), _features(read["terms"], total), _features(read["marks"], total))


def _features(read: Mapping[str, str], total: int) -> dict[str, Feature]:
    found = {}
    for name, told in read.items():
        having, *pairs = told.split()
        weights = {int(place): int(weight) for place, _, weight in (pair.partition(":") for pair in pairs)}
        found[name] = Feature(rarity(int(having), total), weights)
    return found
