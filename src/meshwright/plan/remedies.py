"""Remedies: what would make a job fit that no layout fits, each tried before it is told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshwright.cost.result import DOES_NOT_FIT, FITS
from meshwright.cost.verdict import verdict
from meshwright.plan.question import Question
from meshwright.plan.states import leanest
from meshwright.spec.columns import columns_of
from meshwright.spec.errors import WorkloadError
from meshwright.spec.layout import Layout
from meshwright.spec.notation import format_layout
from meshwright.spec.rules.rule import Job
from meshwright.spec.rules.training import TUNING_RULES
from meshwright.spec.units import gib
from meshwright.spec.workload import Tuning

LARGER = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Times the devices that are tried."""
SHORTEST = 512
"""Tokens of the shortest sequence that is tried."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of the job, and what it leads to."""

    change: str
    verdict: str
    """Whether that layout fits."""
    layout: str
    """The leanest layout of the changed job, in layout notation; empty where none is legal."""
    reserved_bytes: float
    """What it needs of a device."""


def refuse_job(question: Question) -> None:
    """Raises RequestError for a job that no layout could be legal for: its precision, or what of the model learns."""
    q = question
    device, wanted = q.cluster.device, q.workload.precision
    legal = [name for name in ("bf16", "fp16", "fp32", "fp8") if name in device.peak_flops]
    if wanted not in legal:
        example = f", for example --precision {legal[0]}" if legal else ""
        raise WorkloadError(f"{device.name} has no {wanted} arithmetic: choose another precision{example}.", legal)
    job, any_layout = Job(q.model, q.cluster, q.workload, q.spare), Layout()
    for rule in TUNING_RULES:
        if rule.broken(job, columns_of(any_layout)):
            text, values = rule.explain(job, any_layout)
            raise WorkloadError(text, tuple(values))


def remedies(question: Question) -> tuple[Remedy, ...]:
    """Changes of a job that does not fit: the host, more devices, LoRA, a shorter sequence, a smaller batch."""
    tries = (_offload, _more_devices, _lora, _shorter, _half)
    return tuple(remedy for tried in tries if (remedy := tried(question)) is not None)


def _offload(q: Question) -> Remedy | None:
    return None if q.offload else _tried("--offload: keep states on the host", replace(q, offload=True))


def _more_devices(q: Question) -> Remedy | None:
    """The smallest cluster of the same nodes that does, else the largest tried."""
    nodes = [q.cluster.nodes * times for times in LARGER]
    larger = [replace(q.cluster, nodes=count) for count in nodes]
    return _first_that_fits(
        (f"{cluster.devices:,} devices ({cluster.nodes:,} nodes)", replace(q, cluster=cluster, devices=cluster.devices))
        for cluster in larger
    )


def _lora(q: Question) -> Remedy | None:
    if q.workload.tuning.kind != "full":
        return None
    tuning = Tuning("lora")
    change = f"--lora-rank {tuning.lora_rank}: train adapters only"
    return _tried(change, replace(q, workload=replace(q.workload, tuning=tuning)))


def _shorter(q: Question) -> Remedy | None:
    """The longest of the sequence's halves that fits, else the shortest tried."""
    lengths = [q.workload.seq_len]
    while lengths[-1] >= 2 * SHORTEST:
        lengths.append(lengths[-1] // 2)
    return _first_that_fits(
        (f"--seq-len {length}: shorter sequences", replace(q, workload=replace(q.workload, seq_len=length)))
        for length in lengths[1:]
    )


def _half(q: Question) -> Remedy | None:
    batch = q.workload.global_batch // 2
    if not batch:
        return None
    change = f"--global-batch {batch}: a smaller batch"
    return _tried(change, replace(q, workload=replace(q.workload, global_batch=batch)))


def _first_that_fits(changes: Iterator[tuple[str, Question]]) -> Remedy | None:
    last = None
    for change, question in changes:
        last = _tried(change, question)
        if last.verdict == FITS:
            break
    return last


def _tried(change: str, question: Question) -> Remedy:
    found = leanest(question)
    if found is None:
        return Remedy(change, DOES_NOT_FIT, "", math.inf)
    layout, reserved = found
    return Remedy(change, verdict(reserved, question.cluster.device.memory_bytes), format_layout(layout), reserved)


def told(remedy: Remedy, capacity_bytes: float) -> str:
    """One line for people."""
    if not remedy.layout:
        return f"{remedy.change}: no layout is legal."
    need = f"{gib(remedy.reserved_bytes)} of {gib(capacity_bytes)}"
    either = " either" if remedy.verdict == DOES_NOT_FIT else ""
    return f"{remedy.change}: {remedy.verdict}{either}, {need} for {remedy.layout}."
