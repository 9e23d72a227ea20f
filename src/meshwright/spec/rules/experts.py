"""Rules of expert parallelism.

Megatron-LM builds the expert groups anew from all ranks of a pipeline stage, data × context × tensor
(`expert_tensor_model_pipeline_parallel_size` in parallel_state.py), DeepSpeed-MoE takes them from the data-parallel
ranks, torchtitan's ParallelDims from shard × context × tensor. A layout is refused where not even the widest fits.
"""

from __future__ import annotations

from typing import Any

from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import Layout
from meshwright.spec.rules.rule import Job, Note, Refusal, Rule, divisors, nearest


def _count(job: Job) -> int:
    return job.model.experts.count if job.model.experts is not None else 1


def _ranks(c: LayoutColumns | Layout) -> Any:
    return c.data * c.context * c.tensor


def _legal(job: Job, layout: Layout, ranks: int) -> list[str]:
    degrees = [d for d in divisors(_count(job)) if ranks % d == 0]
    return [f"ep{d}" for d in nearest(degrees, layout.expert)]


def _explain_count(job: Job, layout: Layout) -> Refusal:
    text = f"{_count(job)} experts a layer cannot be split over {layout.expert} expert ranks."
    return text, _legal(job, layout, _ranks(layout))


def _explain_ranks(job: Job, layout: Layout) -> Refusal:
    text = (
        f"{layout.expert} expert ranks cannot be taken from data × context × tensor = {layout.data} × "
        f"{layout.context} × {layout.tensor} ranks."
    )
    return text, _legal(job, layout, _ranks(layout))


def _explain_shards(job: Job, layout: Layout) -> Refusal:
    shards = layout.shard * layout.context * layout.tensor
    text = (
        f"torchtitan takes expert ranks from shard × context × tensor = {shards}: it has no room for ep{layout.expert} "
        "among replicas."
    )
    return text, tuple(f"ep{degree}" for degree in divisors(shards) if degree < layout.expert)


RULES: tuple[Rule, ...] = (
    Rule(
        "expert parallelism of a model without experts",
        lambda job, c: (c.expert > 1) & (job.model.experts is None),
        lambda job, layout: (f"{job.model.name} has no experts to split over {layout.expert} ranks.", ("ep1",)),
    ),
    Rule(
        "the experts are not divisible by the expert degree",
        lambda job, c: (job.model.experts is not None) & (_count(job) % c.expert != 0),
        _explain_count,
    ),
    Rule(
        "the expert degree does not divide data × context × tensor",
        lambda job, c: (c.expert > 1) & (_ranks(c) % c.expert != 0),
        _explain_ranks,
    ),
    Rule(
        "DeepSpeed takes expert ranks from the data-parallel ranks",
        lambda job, c: (c.expert > 1) & (c.data % c.expert != 0),
        lambda job, layout: (
            f"DeepSpeed cannot take {layout.expert} expert ranks from {layout.data} data-parallel ranks.",
            _legal(job, layout, layout.data),
        ),
        refused_by=frozenset({"deepspeed"}),
    ),
    Rule(
        "torchtitan's expert ranks exceed shard × context × tensor",
        lambda job, c: (c.expert > 1) & (c.shard * c.context * c.tensor % c.expert != 0),
        _explain_shards,
        refused_by=frozenset({"pytorch"}),
    ),
    Rule(
        "Megatron's expert parallelism does not train in fp16",
        lambda job, c: (c.expert > 1) & (job.workload.precision == "fp16"),
        lambda job, layout: ("Expert parallelism in fp16 is refused by Megatron's argument check.", ("bf16",)),
        refused_by=frozenset({"megatron"}),
    ),
)


def _beyond_node(job: Job, layout: Layout) -> str | None:
    node = job.cluster.devices_per_node
    if layout.expert <= node:
        return None
    return f"Expert parallelism over {layout.expert} ranks leaves the node of {node} devices: all-to-alls cross nodes."


NOTES: tuple[Note, ...] = (_beyond_node,)
