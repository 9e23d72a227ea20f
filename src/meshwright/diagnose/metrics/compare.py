"""Two runs: gradient norms that differ by a factor that names itself, a resume that changed the run, batch and rate.

Factors: DeepSpeed PR #5411 (sqrt of the tensor degree), torchtune #2641 (world for data-parallel size), Megatron-LM
#673 (context degree), transformers PR #34191 (accumulation). Threshold of a resume: 23 of 26 second runs in Megatron-
LM's golden values stay within 1.5e-4 of the first (research, section 0.8). Rates: arXiv 1706.02677 (linear),
1404.5997 (square root).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.pairs import Stretch, pairs

CONSTANT = 0.01
"""A factor that stays within 1 % is one, and no noise."""
SAME_LOSS = 2e-3
"""Relative: the same parameters and data, rounded in bf16 (2^-8 a product, less in their mean)."""
STEPS = 3
MOST_STEPS = 10
"""Later, runs with different norms drift apart."""
RESUMED = 1.5e-4
LOSS_GROWS = 1.5
_DEGREES = ("tp", "cp", "dp", "accumulation", "world", "pp")
_WORDS = {
    "tp": "tensor-parallel "
        "degree", "cp": "context-parallel degree", "dp": "data-parallel degree", "pp": "pipeline degree",
    "accumulation": "accumulation", "world": "world size",
}  # fmt: skip
_FIX = {
    "tp": "Sum squared norms of sharded parameters over the tensor group, and count replicated ones once.",
    "cp": "See whether the loss is multiplied or the gradient summed once too often over the context group.",
    "dp": "Divide gradients by the data-parallel size, once.",
    "world": "Divide gradients by the data-parallel size and not by the world size.",
    "accumulation": "Divide by the tokens of the whole global batch, not by those of each micro-batch (transformers "
    "≥ 4.46).",
    "pp": "Sum squared norms over the stages, and count a tied embedding once.",
}


def grad_norms(facts: Facts) -> Iterator[Finding]:
    """Norms with a constant ratio at equal losses."""
    for a, b in pairs(facts):
        steps = shared(a, b, "grad_norm")
        losses = [(a.by_step("loss").get(step), b.by_step("loss").get(step)) for step in steps[:1]]
        if len(steps) < STEPS or not losses or None in losses[0]:
            continue
        if abs(losses[0][0] - losses[0][1]) > SAME_LOSS * abs(losses[0][0] or 1.0):  # type: ignore[operator]
            continue
        ratio = constant_ratio(a, b, "grad_norm", steps)
        if ratio and abs(math.log(ratio)) > 2 * CONSTANT:
            yield _factor(a, b, "gradient norms", ratio, steps)


def growing_loss(facts: Facts) -> Iterator[Finding]:
    """Losses that differ from the first step by the ratio of the accumulations."""
    for a, b in pairs(facts):
        many, few = b.job.number("accumulation"), a.job.number("accumulation")
        steps = shared(a, b, "loss")
        if many == few or not (many and few) or len(steps) < STEPS:
            continue
        ratio = constant_ratio(a, b, "loss", steps)
        if ratio and abs(ratio / (many / few) - 1) < CONSTANT:
            yield _factor(a, b, "losses", ratio, steps)


def shared(a: Stretch, b: Stretch, name: str) -> list[int]:
    """The first steps of which both have a finite positive value."""
    left, right = a.by_step(name), b.by_step(name)
    both = (step for step in left.keys() & right.keys() if _usable(left[step]) and _usable(right[step]))
    return sorted(both)[:MOST_STEPS]


def _usable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def constant_ratio(a: Stretch, b: Stretch, name: str, steps: Sequence[int]) -> float:
    """b's values relative to a's, where that is one number; else 0."""
    left, right = a.by_step(name), b.by_step(name)
    ratios = [right[step] / left[step] for step in steps]
    middle = median(ratios)
    return middle if math.isfinite(middle) and all(abs(one / middle - 1) <= CONSTANT for one in ratios) else 0.0


def names_of(ratio: float, a: Stretch, b: Stretch) -> list[tuple[str, str]]:
    """Which degrees' ratio, its root or inverse it is: (degree, words)."""
    found = []
    for degree in _DEGREES:
        was, now = _degree(a, degree), _degree(b, degree)
        if not was or not now or was == now:
            continue
        for power, words in ((1.0, "{}"), (0.5, "sqrt({})")):
            for sign, form in ((1, words), (-1, f"1/{words}")):
                if abs(ratio / (now / was) ** (power * sign) - 1) <= CONSTANT:
                    what = form.format(degree if min(was, now) == 1 else f"{degree} {now}/{was}")
                    found.append((degree, f"{what} ({_WORDS[degree]} {was} and {now})"))
    return found


def _degree(one: Stretch, degree: str) -> int:
    if degree == "dp":
        return one.job.data_ranks
    if degree == "world":
        return one.job.world
    told = one.job.number(degree)
    return told or (1 if degree in ("tp", "cp", "pp") and one.job.settings else 0)


def _factor(a: Stretch, b: Stretch, what: str, ratio: float, steps: Sequence[int]) -> Finding:
    names = names_of(ratio, a, b)
    degrees = list(dict.fromkeys(degree for degree, _ in names))
    told = " or ".join(dict.fromkeys(words for _, words in names))
    guess = _guess(ratio)
    confidence = CERTAIN if len(degrees) == 1 else LIKELY if degrees or guess else POSSIBLE
    is_it = f", which is {told}" if told else f", near {guess}: a degree of the layout or its root" if guess else ""
    return Finding(
        "grad_norm_layout", WARNING, confidence, (),
        f"At equal {'losses' if what != 'losses' else 'steps'} the {what} of {b.name} are {ratio:.4g} times those of "
        f"{a.name} "
        f"over {len(steps)} steps{is_it}.",
        (a.at(steps[0]), b.at(steps[0]), b.at(steps[-1])),
        "Compare each layout with a run that is not split, from the same checkpoint.",
        tuple(_FIX[degree] for degree in degrees)
        or ("See over which group the norm is summed and by which size the loss or gradient is divided.",), weight=2,
    )  # fmt: skip


def _guess(ratio: float) -> str:
    """A power of two or the root of one that the ratio is."""
    large, form = (ratio, "{}") if ratio >= 1 else (1 / ratio, "1/{}")
    for exponent in range(1, 21):
        if abs(large / 2 ** (exponent / 2) - 1) <= CONSTANT:
            whole = 2 ** (exponent // 2) if exponent % 2 == 0 else 0
            return form.format(str(whole) if whole else f"sqrt({2**exponent})")
    return ""


def resumed(facts: Facts) -> Iterator[Finding]:
    """A run that begins within another one's steps and does not repeat its losses."""
    for one, other in pairs(facts):
        first, second = (one, other) if one.points[0].step <= other.points[0].step else (other, one)
        steps = shared(first, second, "loss")[:STEPS]
        if second.points[0].step <= first.points[0].step + 1 or len(steps) < STEPS:
            continue
        before, after = first.by_step("loss"), second.by_step("loss")
        off = [abs(after[step] / before[step] - 1) for step in steps]
        if median(off) <= max(RESUMED, *(_rounding(before[step]) for step in steps)):
            continue
        job = second.job
        shards = job.number("tp") if job.number("tp") > 1 else job.world
        uneven = bool(job.number("vocabulary") and shards > 1 and job.number("vocabulary") % shards)
        yield Finding(
            "vocab_padding" if uneven else "checkpoint_reshard", WARNING, POSSIBLE, (),
            f"The run that resumes at step {second.points[0].step} does not repeat the first one: at step {steps[0]} "
            f"the loss is "
            f"{after[steps[0]]:g} and was {before[steps[0]]:g} ({max(off):.2%} off; {RESUMED:.3%} is usual)"
            + (f"; a vocabulary of {job.number('vocabulary')} is split unevenly over {shards}." if uneven else "."),
            (first.at(steps[0]), second.at(steps[0])), "Compare checksums of all parameters before saving and after "
                "loading.",
            (
                "Pad the vocabulary to a multiple of the number of shards." if uneven
                else "See that optimizer state, random states and the position in the data are restored.",
                "Check padded vocabularies and layer names where the layout changed.",
            ), weight=1,
        )  # fmt: skip


def _rounding(value: float) -> float:
    """Relative error of a number that was printed with so many decimals (both were)."""
    decimals = len(repr(value).partition(".")[2]) if "e" not in repr(value) else 6
    return 10.0**-decimals / abs(value)


def batch_and_rate(facts: Facts) -> Iterator[Finding]:
    """A global batch that changed by a factor, and a learning rate that did not."""
    for a, b in pairs(facts):
        if a.run is b.run:
            continue
        was, now = (_batch(one) for one in (a, b))
        rates = [max(values.values(), default=0.0) for values in (a.by_step("lr"), b.by_step("lr"))]
        if not (was and now and min(rates) > 0) or max(was, now) < 2 * min(was, now):
            continue
        if math.isfinite(rates[0]) and abs(rates[1] / rates[0] - 1) < CONSTANT:
            factor = max(was, now) / min(was, now)
            yield Finding(
                "batch_lr_scaling", WARNING, POSSIBLE, (),
                f"The global batch is {was} in {a.name} and {now} in {b.name} ({factor:g} times), at the same "
                f"learning rate "
                f"{rates[0]:g}.",
                (a.run.evidence(a.points[0]), b.run.evidence(b.points[0])),
                "Compare losses at equal numbers of samples.",
                (f"Scale the rate: {factor:g} times (SGD) or {math.sqrt(factor):.3g} times (Adam) with the larger "
                    f"batch, and "
                 "warm up.", "Or keep the global batch, with more accumulation."),
            )  # fmt: skip


def _batch(one: Stretch) -> int:
    told = next(iter(one.by_step("global_batch").values()), 0.0)
    if math.isfinite(told) and told > 0:
        return int(told)
    product = one.job.number("micro") * max(one.job.number("accumulation"), 1) * one.job.data_ranks
    return one.job.number("global_batch") or product
