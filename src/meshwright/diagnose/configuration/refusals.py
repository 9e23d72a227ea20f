"""Refusals: assertions of frameworks that carry numbers, read as `a` of something is no multiple of `b` of something.

Texts of Megatron-LM (training/arguments.py, core/utils.py, transformer_config.py), DeepSpeed (runtime/config.py,
module_inject), vLLM, torchtitan (distributed/parallel_dims.py), accelerate (parallelism_config.py) in several versions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from meshwright.diagnose.finding import Evidence
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.logs.line import Line, holds

_HINTS = ("divisible", "multiple of", "!=", "does not match num_", "not equal to ")
_NUMBER = r"[\[(:=]?\s*(?<!\d)(\d{1,12})(?!\d)[\])]?"
_REFUSED = re.compile(
    rf"(?P<subject>[A-Za-z][\w ./'-]{{0,80}}?)?\s*{_NUMBER}[\s,]*(?:with value\s*)?"
    r"(?:must be|should be|is not|isn't|needs to be|has to be|to be|not|is no|must)\s+(?:evenly )?"
    r"(?:divisible by|a multiple of|an? (?:integer |exact )?multiple of)"
    r"(?P<rest>.{0,200})",
    re.IGNORECASE,
)
_FACTOR = re.compile(r"(?:([A-Za-z][\w ./'-]{0,60}?)\s*)?[\[(:=]?\s*\b(\d{1,12})\b[\])]?")
_PRODUCT = re.compile(r"(?<![\d.])(\d{1,12}) ?(?:!=|is not equal to) ?(\d{1,9}) ?[*x×] ?(\d{1,9}) ?[*x×] ?(\d{1,9})")
_WRITTEN_OUT = re.compile(r"\( ?(\d{1,9}(?: ?[x*×] ?\d{1,9}){1,3}) ?\)")
_DIMENSIONS = re.compile(r"(?P<product>(?:\b\w+\(-?\d+\) ?\* ?)+\w+\(-?\d+\)) ?!= ?WORLD_SIZE ?\(?(?P<world>\d{1,9})")
_TOTAL = re.compile(r"total_size ?\((\d{1,9})\) does not match num_processes ?\((\d{1,9})\)")
SUBJECTS = (
    ("divisibility_gqa", r"query.?group|kv.?head|key.?value|num_kv|n_kv"),
    ("divisibility_heads", r"head"),
    ("pipeline_layout", r"layer"),
    ("moe_imbalance", r"expert(?!.?(?:model|tensor).?parallel)"),
    ("vocab_padding", r"vocab|embedding"),
    ("divisibility_sequence", r"seq|token|context.?len|ulysses"),
    ("batch_config", r"batch"),
    ("world_size_layout", r"world|gpus|processes|ranks|devices"),
)  # fmt: skip
"""Category by the word that says what is not divisible."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A program's refusal with its numbers."""

    kind: str
    """A category; "": the text does not say of what."""
    number: int
    by: int
    factors: tuple[int, ...]
    """Whose product `by` is."""
    words: str
    """What `by` is, as the text says."""
    evidence: Evidence
    when: float | None


def refusal_in(line: Line) -> Refusal | None:
    """What a line refuses, with its numbers; None: nothing."""
    text = line.text
    if not holds(text, _HINTS):
        return None
    if found := _PRODUCT.search(text):
        train, micro, accumulation, world = (int(one) for one in found.groups())
        if "batch" in text.lower():
            return _made(line, "batch_product", train, (micro, accumulation, world), "")
    if found := _DIMENSIONS.search(text):
        factors = tuple(int(one) for one in re.findall(r"\((-?\d+)\)", found["product"]))
        return _made(line, "world_product", int(found["world"]), factors, found["product"])
    if found := _TOTAL.search(text):
        return _made(line, "world_product", int(found[2]), (int(found[1]),), "the parallelism configuration")
    where = max(text.find("divisible"), text.find("multiple of"))
    if where >= 0 and (found := _REFUSED.search(_squeezed(text[max(where - 200, 0) : where + 300]))):
        divisors = [(words or "", int(number)) for words, number in _FACTOR.findall(_clause(found["rest"]))][:4]
        if divisors and all(number > 0 for _, number in divisors):
            words = " ".join(words for words, _ in divisors).strip(" ,.(")
            kind = _kind(found["subject"] or "", words)
            return _made(line, kind, int(found[2]), tuple(number for _, number in divisors), words)
    return None


def _squeezed(text: str) -> str:
    """One blank between words, as a long row would be tried at each of them; a batch of (4 x 3) is one of (12)."""
    return _WRITTEN_OUT.sub(
        lambda found: f"({prod(int(one) for one in re.findall(r'[0-9]+', found[1]))})", " ".join(text.split())
    )


def _clause(rest: str) -> str:
    """The part of a sentence that still speaks of the divisor."""
    return re.split(r"[.;!?](?:\s|$)|, (?:but|got|please|found|set)|\bgot\b", rest)[0]


def _kind(subject: str, divisor: str) -> str:
    """The category that the words of the dividend tell; those nearest to the number count."""
    near = subject.lower()[-60:]
    for category, pattern in SUBJECTS:
        if re.search(pattern, near):
            # Query heads over groups, and heads over a Ulysses group, are other rules than heads over tensor ranks.
            if category == "divisibility_heads" and re.search(r"group|kv|key", divisor.lower()):
                return "divisibility_gqa"
            if category == "divisibility_heads" and re.search(r"ulysses|sequence|\bsp\b|sp_size", divisor.lower()):
                return "divisibility_sequence"
            return category
    return ""


def _made(line: Line, kind: str, number: int, factors: tuple[int, ...], words: str) -> Refusal | None:
    by = prod(factors)
    if number > 10**12 or abs(by) > 10**12:
        return None
    return Refusal(kind, number, by, factors, words, evidence(line), line.when)
