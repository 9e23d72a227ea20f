"""Rule of thumb: the layout that the field's decision tree leads to, without any search.

1. One device holds the job: plain data parallelism (DDP).
2. It does not: share the states among data-parallel ranks, as little as suffices (ZeRO-1, 2, 3); beyond
   PURE_SHARDING devices not alone, since each gather grows with the ranks (Ultra-Scale Playbook, "Finding the best
   training configuration": ZeRO-3 alone up to 512 devices).
3. That does not fit, or there are more data ranks than sequences: tensor parallelism, up to the node and not beyond
   (Narayanan et al. 2021, arXiv:2104.04473, takeaway 1), states by ZeRO-1.
4. Still not: pipeline parallelism across nodes, no deeper than it takes (takeaways 1 and 2).
5. Long sequences: context parallelism before the pipeline. Mixtures: experts spread within the node first
   (Megatron Core's guide to mixtures, "EP within the NVLink domain").

Recomputation is the last resort at each step: selective, then full (Korthikanti et al. 2022, arXiv:2205.05198).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from meshwright.cost.memory import peak_memory
from meshwright.cost.verdict import RISK_SHARE
from meshwright.plan.question import Question
from meshwright.spec.columns import stack
from meshwright.spec.layout import RECOMPUTE, Layout
from meshwright.spec.rules import legal_mask
from meshwright.spec.rules.rule import divisors

PURE_SHARDING = 512
"""Devices up to which sharding alone is advised."""
LONG_SEQUENCE = 32768
"""Tokens from which context parallelism is advised."""
CONTEXT_TOKENS = 4096
"""Tokens of a long sequence that one context rank keeps at least."""
MICRO_BATCHES = (64, 32, 16, 8, 4, 2, 1)
"""Sizes to try: the largest that fits uses the device best."""
FILLING = 4
"""Micro-batches for each pipeline rank that keep the bubble small (a fifth)."""


@dataclass(frozen=True, slots=True)
class Thumb:
    """Where the decision tree ends."""

    layout: Layout
    because: str
    """The branch that was taken."""


def rule_of_thumb(question: Question) -> Thumb | None:
    """The first layout of the tree that is legal and fits safely, else the leanest that fits; None if none does."""
    q = question
    ways = list(_branches(q))
    columns = stack([way.layout for way in ways])
    legal, _ = legal_mask(q.model, q.cluster, q.workload, columns, runtime=q.runtime, spare=q.spare)
    peak = peak_memory(q.model, q.cluster, q.workload, columns, q.software)
    capacity = q.cluster.device.memory_bytes
    chosen = np.flatnonzero(legal & (peak.reserved <= RISK_SHARE * capacity))
    if chosen.size:
        return ways[int(chosen[0])]
    need = np.where(legal, peak.reserved, np.inf)
    leanest = int(np.argmin(need))
    if need[leanest] > capacity:
        return None
    return replace(ways[leanest], because=f"{ways[leanest].because}, at risk of running out of memory")


def _branches(q: Question) -> Iterator[Thumb]:
    """Layouts in the order in which the tree tries them."""
    for kept in RECOMPUTE:
        yield from _branch(q, Degrees(), kept, 0, "one device holds the job: plain data parallelism")
    expert = _spread_experts(q)
    if q.devices <= PURE_SHARDING:
        for kept, stage in product(RECOMPUTE, (1, 2, 3)):
            why = f"one device does not hold the job, shared states do (ZeRO-{stage})"
            yield from _branch(q, Degrees(expert=expert), kept, stage, why)
    in_node = [t for t in divisors(q.devices) if t <= q.cluster.devices_per_node]
    for context in _contexts(q):
        for kept, tensor in product(RECOMPUTE, in_node):
            yield from _split(q, Degrees(tensor, context, 1, expert), kept)
    widest = max((t for t in in_node if _heads_divide(q, t)), default=1)
    pipelines = [p for p in divisors(q.devices) if 1 < p <= q.model.layers]
    for pipeline, context, kept in product(pipelines, _contexts(q), RECOMPUTE):
        yield from _split(q, Degrees(widest, context, pipeline, expert), kept)


@dataclass(frozen=True, slots=True)
class Degrees:
    """What a branch splits the model over."""

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def ranks(self) -> int:
        """Devices that share one copy of a sequence."""
        return self.tensor * self.context * self.pipeline


def _split(q: Question, degrees: Degrees, kept: str) -> Iterator[Thumb]:
    """A branch that splits the model, where its degrees divide the devices."""
    if degrees.ranks > 1 and q.devices % degrees.ranks == 0:
        yield from _branch(q, degrees, kept, 1, _why(q, degrees))


def _branch(q: Question, degrees: Degrees, kept: str, stage: int, because: str) -> Iterator[Thumb]:
    """One branch with micro-batches from large to small; the rest of the devices are data-parallel ranks."""
    data = q.devices // degrees.ranks
    shared = stage if data * degrees.context > 1 else 0
    for size in MICRO_BATCHES:
        starved = q.workload.global_batch < FILLING * degrees.pipeline * data * size
        if degrees.pipeline > 1 and size > 1 and starved:
            continue
        layout = Layout(
            replicate=1 if shared else data,
            shard=data if shared else 1,
            zero_stage=shared,
            tensor=degrees.tensor,
            context=degrees.context,
            pipeline=degrees.pipeline,
            expert=degrees.expert if (q.devices // degrees.pipeline) % degrees.expert == 0 else 1,
            micro_batch=size,
            recompute=kept,
        )
        yield Thumb(layout, because)


def _contexts(q: Question) -> list[int]:
    """Context degrees: one for ordinary sequences, else those that leave CONTEXT_TOKENS or more on a rank."""
    if q.workload.seq_len < LONG_SEQUENCE:
        return [1]
    return [c for c in divisors(q.devices) if c == 1 or q.workload.seq_len // c >= CONTEXT_TOKENS]


def _heads_divide(q: Question, tensor: int) -> bool:
    kv = q.model.kv_heads
    return q.model.heads % tensor == 0 and (kv % tensor == 0 or tensor % kv == 0)


def _spread_experts(q: Question) -> int:
    """The largest expert degree within a node, 1 for dense models."""
    if q.model.experts is None:
        return 1
    fitting = [d for d in divisors(q.model.experts.count) if d <= q.cluster.devices_per_node and q.devices % d == 0]
    return max(fitting)


def _why(q: Question, degrees: Degrees) -> str:
    parts = []
    if degrees.tensor > 1:
        parts.append(f"tensor parallelism inside the node ({degrees.tensor} of {q.cluster.devices_per_node} devices)")
    if degrees.context > 1:
        parts.append(f"context parallelism for {q.workload.seq_len:,} tokens ({degrees.context} ranks)")
    if degrees.pipeline > 1:
        parts.append(f"a pipeline of {degrees.pipeline} ranks for what is still too large")
    data = q.devices // degrees.ranks
    if data > 1:
        parts.append(f"ZeRO-1 over the {data} data-parallel ranks")
    return ", ".join(parts)
