"""Notes: layouts and models as people write them: `TP8 PP4 EP16`, `GLM (46 layers)`, `64 query heads, 2 KV heads`."""

from __future__ import annotations

import re

_LAYOUT = re.compile(
    r"(?<![\w-])(TP|PP|VPP|CP|EP|DP|SP|Ulysses)\s?(?:size)?[-_=: ]?(\d{1,6})\b(?!\s*[.]\d|\s?->)", re.IGNORECASE
)
_COUNT = re.compile(
    r"(?<![\w.,])(\d{1,7})\s+(?:attention |query |q )?"
    r"(kv[ -]heads?|key/value heads?|query groups?|kv|heads?|layers?|experts?)\b(?!\s*per)",
    re.IGNORECASE,
)
_LATER = re.compile(r"\b(vocab(?:ulary)?(?:[ _]size)?)(?:\s+(?:of|is|=))?\s+(\d{3,7})\b", re.IGNORECASE)
_EP = re.compile(r"\b(ep_size|ep size|expert.parallel(?:ism)?(?: size)?)\s+(?:of|is|=|to)\s+(\d{1,5})\b", re.IGNORECASE)
_ZERO = re.compile(r"\bZeRO(?:[- ]?(?:stage)?[- ]?)?([123])\b(?!/)", re.IGNORECASE)
_GRID = re.compile(r"\b(\d{1,5}) ?(?:nodes? )?[x×] ?(\d{1,3}) ?x? ?(?=[A-Z]{0,3}\d{2,4}\b|GPUs?\b)", re.IGNORECASE)
_NAMES = {"ulysses": "ulysses", "sp": "ulysses"}


def noted(text: str) -> dict[str, int]:
    """The quantities that a short text names, the first of each."""
    found: dict[str, int] = {}
    for word, number in _LAYOUT.findall(text):
        found.setdefault(_NAMES.get(word.lower(), word.lower()), int(number))
    found.update({name: value for name, value in counted(text).items() if name not in found})
    if zero := _ZERO.search(text):
        found.setdefault("zero", int(zero[1]))
    if grid := _GRID.search(text):
        found.setdefault("nodes", int(grid[1]))
        found.setdefault("per_node", int(grid[2]))
    return {name: value for name, value in found.items() if value > 0}


def counted(text: str) -> dict[str, int]:
    """What of a model a text counts: layers, heads, experts, the vocabulary."""
    found: dict[str, int] = {}
    for number, word in _COUNT.findall(text):
        word = word.lower()
        is_kv = word.startswith(("kv", "key", "query g"))
        name = "kv_heads" if is_kv else {"h": "heads", "l": "layers", "e": "experts"}[word[0]]
        found.setdefault(name, int(number))
    for _, number in _LATER.findall(text):
        found.setdefault("vocabulary", int(number))
    for _, number in _EP.findall(text):
        found.setdefault("ep", int(number))
    return {name: value for name, value in found.items() if value > 0}
