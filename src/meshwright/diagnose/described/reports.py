"""How near a text is to public reports of each kind of fault: multinomial logistic regression over words.

A text's features are its words (rare ones count more: tf-idf), pairs of words that follow each other, and the patterns
of `words.toml` that it has, each group scaled to a length of its own. `reports.json` holds the weights;
`scripts/reports.py` fits them to the words of issues whose cause is known or inferred, to descriptions that were
written for it, and to what healthy jobs print.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

from meshwright.diagnose.described.words import marks, short_name

NOTHING = "nothing"
"""The category of what healthy jobs print."""
SHARES = {"terms": 1.0, "marks": 0.7, "pairs": 0.8}
"""Groups of features, and the length of each."""
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
    """A word, a pattern or a pair of words."""

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
    groups: Mapping[str, Mapping[str, str]]
    """By group, what is written of each feature: how many reports have it, and `place:weight` of categories. There are
    tens of thousands, and a text has some hundred."""

    def likeness(self, own: Mapping[str, Iterable[str]]) -> dict[str, float]:
        """How likely each category is for a text with these features by group, from 0 to 1; together 1."""
        scores = [UNIT * one for one in self.bias]
        total = sum(self.kinds.values())
        for group, names in own.items():
            known = self.groups[group]
            found = [_feature(known[one], total) for one in names if one in known]
            length = math.sqrt(math.fsum(one.rarity**2 for one in found))
            for one in found:
                for place, weight in one.weights.items():
                    scores[place] += SHARES[group] * one.rarity / length * UNIT * weight
        most = max(scores)
        odds = [math.exp(one - most) for one in scores]
        return {kind: one / sum(odds) for kind, one in zip(self.kinds, odds, strict=True)}


def _feature(told: str, total: int) -> Feature:
    having, *pairs = told.split()
    weights = {int(place): int(weight) for place, _, weight in (pair.partition(":") for pair in pairs)}
    return Feature(rarity(int(having), total), weights)


def features(text: str) -> dict[str, set[str]]:
    """What of a text counts, by group."""
    words = _words(text)
    return {"terms": set(words), "marks": marks(text), "pairs": {short_name(f"{a} {b}") for a, b in pairwise(words)}}


def _words(text: str) -> list[str]:
    """Words of a text without their endings, and numbers of up to three digits (error 12, exit code -9)."""
    plain = _CAMEL.sub(r"\1 \2", text).lower().replace("_", " ")
    return [_ENDING.sub("", one) if len(one) > 5 else one for one in _TERM.findall(plain) if one not in _COMMON]


def rarity(having: int, reports: int) -> float:
    """Inverse document frequency of a feature that so many of the reports have (scikit-learn's smoothed form)."""
    return math.log((1 + reports) / (1 + having)) + 1


def likeness(text: str) -> dict[str, float]:
    """How likely each category is for a text, by its words alone, from 0 to 1; together 1."""
    return reports().likeness(features(text))


@cache
def reports() -> Reports:
    """What comes with the package."""
    return of_document(json.loads(resources.files(__package__).joinpath("reports.json").read_text(encoding="utf-8")))


def of_document(read: Mapping[str, Any]) -> Reports:
    """What `scripts/reports.py` has learned."""
    return Reports(read["kinds"], tuple(read["bias"]), {group: read[group] for group in SHARES})
