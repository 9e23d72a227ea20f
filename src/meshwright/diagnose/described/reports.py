"""How near a text is to public reports of each kind of fault: a naive Bayes over the terms that they share.

`reports.json` holds how many reports of each kind have a term, from issues whose cause is known or inferred; their
addresses are in it, and `scripts/reports.py` makes it. Pure counting; nothing is drawn at random.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise

PRIOR, SMOOTH = 0.3, 0.3
"""Weight of how common a kind is, and what is added to each count."""
LEAST, MOST = -0.5, 3.0
"""One term's evidence, in nats: what a term's absence among few reports says is little."""
_TERM = re.compile(r"[a-z][a-z0-9]+|[\u4e00-\u9fff]{2}")
_CAMEL = re.compile(r"([a-z])([A-Z])")
_ENDING = re.compile(r"(?:ing|ed|es|s)$")
_COMMON = frozenset(
    "the a an of to in is it and for on with this that i we be are was as at by from or when my".split()
)


@dataclass(frozen=True, slots=True)
class Reports:
    """What was counted."""

    kinds: Mapping[str, int]
    """Reports of each category."""
    terms: Mapping[str, Mapping[str, int]]
    """Of each term: reports with it, by category."""


def terms_of(text: str) -> set[str]:
    """Words of a text without their endings, and pairs of neighbours."""
    plain = _CAMEL.sub(r"\1 \2", text).lower().replace("_", " ")
    words = [_ENDING.sub("", one) if len(one) > 5 else one for one in _TERM.findall(plain) if one not in _COMMON]
    return {*words, *(f"{a} {b}" for a, b in pairwise(words))}


def likeness(text: str) -> dict[str, float]:
    """Evidence for each category, in nats; only differences between categories mean something."""
    known = reports()
    total = sum(known.kinds.values())
    found = {kind: PRIOR * math.log(count / total) for kind, count in known.kinds.items()}
    for term in terms_of(text):
        by_kind = known.terms.get(term)
        if by_kind is not None:
            everywhere = sum(by_kind.values())
            for kind, count in known.kinds.items():
                found[kind] += _evidence(by_kind.get(kind, 0), count, everywhere, total)
    return found


def _evidence(here: int, kind: int, everywhere: int, total: int) -> float:
    """Log of how much likelier a term is in reports of a kind than in the others."""
    inside = (here + SMOOTH * everywhere / total) / (kind + SMOOTH)
    outside = (everywhere - here + SMOOTH) / (total - kind + 2 * SMOOTH)
    return max(LEAST, min(MOST, math.log(inside / outside)))


@cache
def reports() -> Reports:
    """The counts that come with the package."""
    read = json.loads(resources.files(__package__).joinpath("reports.json").read_text(encoding="utf-8"))
    names = list(read["kinds"])
    return Reports(
        read["kinds"],
        {
            term: {names[int(at)]: int(count) for at, count in (pair.split(":") for pair in pairs.split())}
            for term, pairs in read["terms"].items()
        },
    )
