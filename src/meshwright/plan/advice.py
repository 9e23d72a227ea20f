"""Advice: the decision tree's layout beside the search's, with the numbers that decide in this job."""

from __future__ import annotations

import math

from meshwright.cost.parameters import parameters
from meshwright.cost.result import FITS, Estimate
from meshwright.cost.shares import learning_share
from meshwright.cost.verdict import verdict
from meshwright.plan.question import Question
from meshwright.plan.rule_of_thumb import LONG_SEQUENCE, Thumb, rule_of_thumb
from meshwright.plan.shortlist import simulated_step_seconds
from meshwright.plan.warnings import one_device_bytes
from meshwright.plan.words import longer
from meshwright.spec.layout import Layout
from meshwright.spec.notation import format_layout
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.rules.rule import divisors
from meshwright.spec.units import count, duration, gib, percent

AGREE = 0.02
"""Times that differ by less are called equal."""


def advice(question: Question, best: Estimate | None) -> tuple[str, ...]:
    """What the rules of thumb say of this job, and whether the search agrees."""
    thumb = rule_of_thumb(question)
    lines = [_states(question), _activations(question), _batch(question)]
    if question.model.experts is not None:
        lines.append(_experts(question))
    if thumb is None:
        found = f"; the search does: {format_layout(best.layout)}" if best else ""
        return (*lines, f"The rules of thumb find no layout that fits{found}.")
    lines.append(f"Rules of thumb: {thumb.because}: {format_layout(thumb.layout)}.")
    return (*lines, _verdict(question, thumb, best))


def _states(question: Question) -> str:
    q = question
    total, states = parameters(q.model).total, state_bytes(q.workload, q.model)
    have = q.cluster.device.memory_bytes
    if q.workload.tuning.kind == "full":
        need = total * states.total
        sizes = f"{count(total)} parameters × {states.total:.4g} bytes"
    else:
        learned = learning_share(q.model, q.workload.tuning) * total
        need = total * states.parameter + learned * (states.total - states.parameter)
        more = states.total - states.parameter
        sizes = f"{count(total)} parameters × {states.parameter:.4g} bytes + {count(learned)} that learn × {more:.4g}"
    text = f"States: {sizes} = {gib(need)}; a device has {gib(have)}"
    if need <= have:
        return f"{text}."
    shared = -(-need // have)
    return f"{text}, so that they need {shared:,.0f} devices at least."


def _activations(question: Question) -> str:
    kept, recomputed = (one_device_bytes(question, kind) for kind in ("none", "full"))
    have = question.cluster.device.memory_bytes
    if verdict(kept, have) == FITS:
        held = "it holds the job"
    elif verdict(recomputed, have) == FITS:
        held = "it holds the job if everything is recomputed"
    elif recomputed <= have:
        held = "it barely holds the job, even if everything is recomputed"
    else:
        held = "it does not hold the job"
    return (
        f"Activations: with one sequence of {question.workload.seq_len:,} tokens at a time, a single device of "
        f"{gib(have)} would need {gib(kept)}, or {gib(recomputed)} with full recomputation: {held}."
    )


def _batch(question: Question) -> str:
    w, devices = question.workload, question.devices
    text = (
        f"Batch: {w.tokens:,} tokens a step, {w.tokens // devices:,} a device, {w.global_batch / devices:.3g} sequences"
    )
    ranks = math.gcd(w.global_batch, devices)
    if ranks < min(w.global_batch, devices):
        near = " and ".join(f"{batch:,}" for batch in near_batches(w.global_batch, devices))
        most = f"at most {ranks:,}" if ranks > 1 else "no"
        text += f"; {most} data-parallel ranks divide {w.global_batch:,}, more divide {near}"
    elif w.global_batch < devices:
        text += f"; data parallelism alone can use {w.global_batch} of {devices} devices"
    if w.seq_len >= LONG_SEQUENCE:
        text += "; so long a sequence asks for context parallelism"
    return f"{text}."


def near_batches(batch: int, devices: int) -> tuple[int, ...]:
    """The batches next below and above that as many of the devices as possible divide."""
    whole = [batch // devices * devices, (batch // devices + 1) * devices]
    some = [d for d in divisors(devices) if d < batch]
    return tuple(b for b in (whole[0] or max(some), whole[1]) if math.gcd(b, devices) > math.gcd(batch, devices))


def _experts(question: Question) -> str:
    experts = question.model.experts
    assert experts is not None
    part = parameters(question.model)
    return (
        f"Experts: {experts.count} a layer, {experts.per_token} a token; {count(part.active)} of {count(part.total)} "
        "parameters work on a token, so that spreading experts beats splitting matrices."
    )


def _verdict(question: Question, thumb: Thumb, best: Estimate | None) -> str:
    """Whether the search agrees, and what the difference is worth."""
    seconds = simulated_step_seconds(question, thumb.layout)
    if best is None:
        return "The search finds nothing that fits."
    if thumb.layout == best.layout:
        return f"The search agrees: {duration(seconds)} a step."
    gain = seconds / best.step_seconds - 1
    found = f"{format_layout(best.layout)}, {duration(best.step_seconds)}"
    if abs(gain) <= AGREE:
        return f"The search agrees within {percent(AGREE)}: {duration(seconds)} a step, against {found}."
    if gain < 0:
        return (
            f"The rule's layout takes {duration(seconds)} a step, {percent(-gain)} less than the search's choice "
            f"({found}), which has another objective."
        )
    better = _difference(thumb.layout, best.layout)
    against = longer(1 + gain, found)
    return f"The search disagrees: the rule's layout takes {duration(seconds)}, {against}{better}."


def _difference(rule: Layout, found: Layout) -> str:
    """The degrees in which the two layouts differ."""
    names = ("zero_stage", "tensor", "context", "expert", "pipeline", "schedule", "micro_batch", "recompute")
    named = [
        f"{name.replace('_', ' ')} {getattr(found, name)} instead of {getattr(rule, name)}"
        for name in names
        if getattr(rule, name) != getattr(found, name)
    ]
    return f" ({', '.join(named[:4])})" if named else ""
