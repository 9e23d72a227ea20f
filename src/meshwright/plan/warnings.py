"""Warnings: what smells about a plan, with its numbers. What the rules note about its layout is said first."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.cost.memory import peak_memory
from meshwright.cost.result import AT_RISK, Estimate
from meshwright.cost.verdict import RISK_SHARE
from meshwright.plan.question import Question
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import Layout
from meshwright.spec.notation import format_layout
from meshwright.spec.units import gib, percent

NOTABLE = 0.15
"""Share of a step from which launches or idling are worth a word."""
SMALL_STATES = 0.25
"""Share of a device that unsharded states may take for ZeRO-3 to be called unneeded."""


def warnings(question: Question, best: Estimate) -> tuple[str, ...]:
    """What a person should know before running the best plan."""
    found = [smell(question, best) for smell in SMELLS]
    return best.warnings + tuple(text for text in found if text is not None)


def risky_alternative(risky: Estimate, best: Estimate) -> str:
    """Why a faster layout is not the one to use."""
    faster = 1 - risky.step_seconds / best.step_seconds
    share = risky.memory.reserved_bytes / risky.memory.capacity_bytes
    return (
        f"{format_layout(risky.layout)} is {percent(faster)} faster but takes {percent(share)} of the memory: an error "
        "of a few per cent in the estimate decides whether it runs."
    )


def _at_risk(question: Question, best: Estimate) -> str | None:
    if best.memory.verdict != AT_RISK:
        return None
    share = best.memory.reserved_bytes / best.memory.capacity_bytes
    return f"Even the best layout takes {percent(share)} of the memory: it may run out."


def _unneeded_zero3(question: Question, best: Estimate) -> str | None:
    unsharded = best.parameters_per_device * best.state_bytes_per_parameter
    if best.layout.zero_stage != 3 or unsharded > SMALL_STATES * best.memory.capacity_bytes:
        return None
    return (
        f"ZeRO-3 for a small model: unsharded, its states take {gib(unsharded)} of {gib(best.memory.capacity_bytes)}; "
        "ZeRO-1 gathers no parameters in forward and backward."
    )


def _one_device_would_do(question: Question, best: Estimate) -> str | None:
    layout = best.layout
    if layout.tensor * layout.pipeline * layout.context == 1:
        return None
    need = one_device_bytes(question)
    if need > RISK_SHARE * best.memory.capacity_bytes:
        return None
    return (
        f"One device holds the whole job ({gib(need)} of {gib(best.memory.capacity_bytes)}): the model is split for "
        "speed alone, and plain data parallelism is the simpler program."
    )


def _launch_bound(question: Question, best: Estimate) -> str | None:
    share = best.time["launch"] / best.step_seconds
    if share < NOTABLE:
        return None
    return (
        f"Micro-batches of {best.layout.micro_batch} × {question.workload.seq_len // best.layout.context:,} tokens are "
        f"launch-bound: {percent(share)} of the step the device waits for its host."
    )


def _idle(question: Question, best: Estimate) -> str | None:
    if best.bubble < NOTABLE:
        return None
    m = question.workload.global_batch // (best.layout.data * best.layout.micro_batch)
    return (
        f"The pipeline idles {percent(best.bubble)} of the step: {m} micro-batches for {best.layout.pipeline} ranks. "
        "A larger global batch would help."
    )


SMELLS: tuple[Callable[[Question, Estimate], str | None], ...] = (
    _at_risk,
    _unneeded_zero3,
    _one_device_would_do,
    _launch_bound,
    _idle,
)


def one_device_bytes(question: Question, recompute: str = "none") -> float:
    """Bytes that one device needs for the whole model, sequence by sequence."""
    q = question
    columns = columns_of(Layout(recompute=recompute))
    return float(peak_memory(q.model, q.cluster, q.workload, columns, q.software).reserved)
