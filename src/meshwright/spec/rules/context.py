"""Rules of context parallelism.

Causal ring and all-gather attention balance their load by giving each rank a chunk from the head of the sequence and
one from its tail, so the sequence has 2 × context chunks. Megatron-LM's argument check asks for that; PyTorch 2.13's
context parallelism goes without the balance where it cannot be had (`_create_default_load_balancer`). Ulysses
(arXiv:2309.14509) gives each rank some of the heads that the tensor ranks left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.spec.columns import LayoutColumns, columns_of
from meshwright.spec.layout import CONTEXT_KINDS, Layout
from meshwright.spec.rules.rule import Job, Note, Refusal, Rule, divisors, legal_degrees, nearest

_ULYSSES = CONTEXT_KINDS.index("ulysses")


def _splits() -> list[Rule]:
    """The rules that every runtime enforces."""
    return [rule for rule in RULES if rule.binds(None)]


def _legal(job: Job, layout: Layout) -> list[str]:
    kind = "" if layout.context_kind == CONTEXT_KINDS[0] else f":{layout.context_kind}"
    candidates = range(1, max(2 * layout.context, 2) + 1)
    degrees = legal_degrees(_splits(), job, layout, "context", candidates)
    return [f"cp{degree}{kind}" for degree in degrees]


def _uneven(job: Job, c: LayoutColumns) -> Any:
    return job.workload.seq_len % c.context != 0


def _explain_uneven(job: Job, layout: Layout) -> Refusal:
    text = f"A sequence of {job.workload.seq_len} tokens cannot be split over {layout.context} context ranks."
    return text, _legal(job, layout)


def _unbalanced(job: Job, c: LayoutColumns) -> Any:
    return (c.context > 1) & (job.workload.seq_len % (2 * c.context) != 0)


def _explain_unbalanced(job: Job, layout: Layout) -> Refusal:
    seq, unit = job.workload.seq_len, 2 * layout.context
    text = f"A sequence of {seq} tokens is not a multiple of 2 × {layout.context} context ranks."
    return text, [f"sequence length {n}" for n in nearest((seq // unit * unit, (seq // unit + 1) * unit), seq) if n]


def _headless(job: Job, c: LayoutColumns) -> Any:
    groups, kv = c.context * c.tensor, job.model.kv_heads
    misfit = (job.model.heads % groups != 0) | ((kv % groups != 0) & (groups % kv != 0))
    return (c.context > 1) & (c.context_kind == _ULYSSES) & misfit


def _explain_headless(job: Job, layout: Layout) -> Refusal:
    groups = layout.context * layout.tensor
    text = (
        f"Ulysses gives each of context × tensor = {groups} ranks its own heads: {job.model.heads} heads and "
        f"{job.model.kv_heads} key/value heads do not allow it."
    )
    fitting = [d // layout.tensor for d in divisors(job.model.heads) if d % layout.tensor == 0]
    degrees = legal_degrees(_splits(), job, layout, "context", fitting or [1])
    return text, [*(f"cp{degree}:ulysses" for degree in degrees), f"cp{layout.context}:ring"]


RULES: tuple[Rule, ...] = (
    Rule("the sequence is not divisible by the context degree", _uneven, _explain_uneven),
    Rule("Ulysses: the heads are not divisible by context × tensor", _headless, _explain_headless),
    Rule(
        "the sequence is not divisible by 2 × the context degree",
        _unbalanced,
        _explain_unbalanced,
        refused_by=frozenset({"megatron"}),
    ),
    Rule(
        "DeepSpeed's sequence parallelism is Ulysses",
        lambda job, c: (c.context > 1) & (c.context_kind != _ULYSSES),
        lambda job, layout: (
            f"cp{layout.context}:{layout.context_kind} is not DeepSpeed's sequence parallelism.",
            (f"cp{layout.context}:ulysses",),
        ),
        refused_by=frozenset({"deepspeed"}),
    ),
)


def _idle_ranks(job: Job, layout: Layout) -> str | None:
    causal = job.model.causal and job.workload.causal
    if not causal or layout.context_kind == "ulysses" or not bool(np.any(_unbalanced(job, columns_of(layout)))):
        return None
    return (
        f"PyTorch drops the load balance of causal context parallelism without a word: {job.workload.seq_len} tokens "
        f"are not 2 × {layout.context} equal chunks, and the last rank does nearly twice the average work."
    )


def _shared_kv_heads(job: Job, layout: Layout) -> str | None:
    groups, kv = layout.context * layout.tensor, job.model.kv_heads
    if layout.context == 1 or layout.context_kind != "ulysses" or groups <= kv:
        return None
    return f"Ulysses over {groups} ranks copies each of the {kv} key/value heads to {groups // kv} ranks."


NOTES: tuple[Note, ...] = (_idle_ranks, _shared_kv_heads)
