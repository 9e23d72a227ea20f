"""What a refusal with numbers says: its category, the arithmetic, and the values that would be taken."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.configuration.divisibility import key_value_heads, tensor_advice
from meshwright.diagnose.configuration.legal import common, listed, neighbours
from meshwright.diagnose.configuration.refusals import Refusal
from meshwright.diagnose.configuration.settings import Job
from meshwright.diagnose.finding import CERTAIN, ERROR, LIKELY, POSSIBLE, Finding

VOCABULARY = 8192
"""No model has as many heads, layers or experts; hardly a vocabulary is smaller."""
_NOUNS = {
    "divisibility_heads": "attention heads", "divisibility_gqa": "key/value heads", "pipeline_layout": "layers",
    "moe_imbalance": "experts", "vocab_padding": "entries of the vocabulary", "divisibility_sequence": "tokens",
    "batch_config": "sequences of a global batch", "world_size_layout": "ranks",
}  # fmt: skip


def refused(refusal: Refusal, job: Job) -> Iterator[Finding]:
    """A Finding for a quotient that does not come out even. Certain: the text names what it divides."""
    if refusal.kind == "batch_product":
        return
    if refusal.kind == "world_product":
        yield _product(refusal)
        return
    number, by = refusal.number, refusal.by
    if not by or number % by == 0:
        return
    kind, confidence = (refusal.kind, CERTAIN) if refusal.kind else _guessed(refusal, job)
    if not kind:
        return
    noun = _NOUNS[kind]
    if kind == "divisibility_gqa" and "group" in refusal.words.lower():
        noun = "attention heads"
    over = refusal.words.strip() if 0 < len(refusal.words.strip()) < 80 else ""
    yield Finding(
        kind, ERROR, confidence, _ranks(refusal), f"{number} {noun} are no multiple of "
            f"{by}{f' ({over})' if over else ''}.",
        (refusal.evidence,), change=_advice(kind, refusal, job), when=refusal.when, weight=2,
    )  # fmt: skip


def _ranks(refusal: Refusal) -> tuple[int, ...]:
    # Every rank refuses alike: none of them is to blame.
    return ()


def _guessed(refusal: Refusal, job: Job) -> tuple[str, str]:
    """`25 is not divisible by 4` does not say of what: the configuration, or the size of the number, may."""
    names = {
        "heads": "divisibility_heads", "kv_heads": "divisibility_gqa", "vocabulary": "vocab_padding",
        "padded_vocabulary": "vocab_padding", "layers": "pipeline_layout", "experts": "moe_imbalance",
        "sequence": "divisibility_sequence", "global_batch": "batch_config",
    }  # fmt: skip
    for name, kind in names.items():
        if job.number(name) == refusal.number:
            return kind, LIKELY
    if refusal.number > VOCABULARY:
        return "vocab_padding", POSSIBLE
    if refusal.number <= 256 and (not job.number("tp") or job.number("tp") == refusal.by):
        return "divisibility_heads", POSSIBLE
    return "", ""


def _advice(kind: str, refusal: Refusal, job: Job) -> tuple[str, ...]:
    number, by = refusal.number, refusal.by
    if kind == "divisibility_heads":
        return (tensor_advice(number, key_value_heads(job)),)
    if kind == "divisibility_gqa":
        heads = job.number("heads")
        if "group" in refusal.words.lower() or "kv" in refusal.words.lower():
            return (f"Take as many key/value heads as divide {number}: {listed(common(number))}.",)
        return (tensor_advice(heads, number) if heads else f"Take a tensor degree of {listed(common(number))}.",)
    if kind in ("divisibility_sequence", "vocab_padding"):
        return (f"Pad to {listed(sorted(neighbours(number, by))[-1:])}, the next multiple of {by}.",)
    if kind == "batch_config":
        return (f"Take a global batch of {listed(neighbours(number, by))} (a multiple of {by}).",
                f"Or a micro-batch × data-parallel ranks of {listed(common(number), 16)}.")  # fmt: skip
    if kind == "world_size_layout":
        return (f"Use {listed(neighbours(number, by))} ranks, or degrees whose product is one of "
                f"{listed(common(number), 16)}.",)  # fmt: skip
    said = f"Take a number of {'stages' if kind == 'pipeline_layout' else 'ranks'} that divides {number}: "
    more = ("Or give the first and last stages their own number of layers.",) if kind == "pipeline_layout" else ()
    return (f"{said}{listed(common(number))}.", *more)


def _product(refusal: Refusal) -> Finding:
    product, world = refusal.by, refusal.number
    near = f"{refusal.words} = {product}" if refusal.words else str(product)
    change = ["See that WORLD_SIZE is that of the launch (processes a node × nodes)."]
    if 0 < product <= world and world % product == 0:
        change.insert(0, f"Raise the data-parallel degree {world // product} times, or set it to -1.")
    elif world > 0:
        change.insert(0, f"Use degrees whose product is {world}, or launch {product} ranks.")
    return Finding(
        "world_size_layout", ERROR, CERTAIN, (),
        f"The layout's degrees multiply to {product} and there are {world} ranks.",
        (refusal.evidence,), f"Compare {near[:160]} with the launch command.", tuple(change), refusal.when, weight=2,
    )  # fmt: skip
