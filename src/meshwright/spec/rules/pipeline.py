"""Rules of pipeline parallelism.

Micro-batch conditions are those of torch.distributed.pipelining.schedules in PyTorch 2.13: Schedule1F1B and
ScheduleDualPipeV need as many micro-batches as stages, the interleaved schedules a multiple of their rounds
max(1, m // p). Megatron-LM has 1f1b and interleaved1f1b (micro-batches a multiple of p), DeepSpeed 1f1b
(dualpipev is an open pull request, deepspeedai/DeepSpeed#8576);
DeepSpeed's PipelineEngine asserts a ZeRO stage below 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import MULTI_STAGE_SCHEDULES, SCHEDULES, V_SCHEDULES, Layout
from meshwright.spec.rules.rule import EVERY, Job, Note, Refusal, Rule, divisors, legal_degrees, nearest
from meshwright.spec.rules.shape import by_hand

_CODE = {name: code for code, name in enumerate(SCHEDULES)}
_IN_ROUNDS = [_CODE["interleaved1f1b"], _CODE["interleavedzerobubble"]]
_SPLIT_BACKWARD = [_CODE["interleavedzerobubble"], _CODE["zbvzerobubble"], _CODE["dualpipev"]]
_OF_RUNTIME = {"megatron": ("1f1b", "interleaved1f1b"), "deepspeed": ("1f1b",)}


def _too_many_stages(job: Job, c: LayoutColumns) -> Any:
    return (c.stages > job.model.layers) & ~np.asarray(by_hand(c, lambda layers, stages: True), dtype=bool)


def _explain_stages(job: Job, layout: Layout) -> Refusal:
    layers, v = job.model.layers, layout.virtual_stages
    text = f"{layers} layers cannot fill {layout.stages} stages ({layout.pipeline} ranks × {v})."
    name = layout.schedule
    several = name in MULTI_STAGE_SCHEDULES and name not in V_SCHEDULES
    fewer = layers // layout.pipeline
    legal = [f"pp{layout.pipeline}:{name}:{fewer}"] if several and 2 <= fewer < v else []
    count = f":{v}" if several else ""
    written = "" if name == "1f1b" else f":{name}{count}"
    least = 1 if name not in MULTI_STAGE_SCHEDULES else 2
    degrees = nearest((p for p in range(least, layers // v + 1)), layout.pipeline, 3)
    return text, [*legal, *(f"pp{p}{written}" for p in degrees)] or ["pp1"]


def _explain_sum(job: Job, layout: Layout) -> Refusal:
    text = f"stages:{'-'.join(map(str, layout.stage_layers))} places {sum(layout.stage_layers)} layers."
    return text, (f"a sum of {job.model.layers}",)


def _short_of_stages(job: Job, c: LayoutColumns) -> Any:
    return (c.schedule == _CODE["1f1b"]) & (job.micro_batches(c) < c.pipeline)


def _short_of_double(job: Job, c: LayoutColumns) -> Any:
    return (c.schedule == _CODE["dualpipev"]) & (job.micro_batches(c) < 2 * c.pipeline)


def _out_of_rounds(job: Job, c: LayoutColumns) -> Any:
    m = job.micro_batches(c)
    rounds = np.maximum(1, m // c.pipeline)
    return np.isin(c.schedule, _IN_ROUNDS) & (m % rounds != 0)


def _out_of_groups(job: Job, c: LayoutColumns) -> Any:
    return (c.schedule == _CODE["interleaved1f1b"]) & (job.micro_batches(c) % c.pipeline != 0)


def _explain_micro_batches(job: Job, layout: Layout) -> Refusal:
    m = job.workload.global_batch // (layout.data * layout.micro_batch)
    per_rank = job.workload.global_batch // layout.data
    rules = [rule for rule in RULES if rule.broken in _COUNTED]
    sizes = legal_degrees(rules, job, layout, "micro_batch", divisors(per_rank))
    text = f"{layout.schedule} over {layout.pipeline} pipeline ranks cannot run {m} micro-batches a step: it needs "
    need = {
        "1f1b": f"at least {layout.pipeline}.",
        "dualpipev": f"at least {2 * layout.pipeline}.",
    }.get(layout.schedule, f"a multiple of {max(1, m // layout.pipeline)} rounds, best of {layout.pipeline}.")
    unit = layout.data * layout.micro_batch * layout.pipeline * (2 if layout.schedule == "dualpipev" else 1)
    batch = max(1, round(job.workload.global_batch / unit)) * unit
    return text + need, [*(f"mbs{size}" for size in sizes), f"global batch {batch}"]


def _foreign(runtime: str) -> Rule:
    codes = [_CODE[name] for name in _OF_RUNTIME[runtime]]
    names = {"megatron": "Megatron", "deepspeed": "DeepSpeed"}
    return Rule(
        f"{names[runtime]} does not have the schedule",
        lambda job, c: (c.pipeline > 1) & ~np.isin(c.schedule, codes),
        lambda job, layout: (f"{names[runtime]} does not have the schedule {layout.schedule}.", _OF_RUNTIME[runtime]),
        refused_by=frozenset({runtime}),
    )


_COUNTED = (_short_of_stages, _short_of_double, _out_of_rounds)

RULES: tuple[Rule, ...] = (
    Rule("more stages than layers", _too_many_stages, _explain_stages),
    Rule(
        "stages by hand do not place every layer once",
        lambda job, c: by_hand(c, lambda layers, stages: sum(layers) != job.model.layers),
        _explain_sum,
    ),
    Rule("dualpipev needs two micro-batches for each pipeline rank", _short_of_double, _explain_micro_batches),
    Rule("the micro-batches do not fill the interleaved schedule's rounds", _out_of_rounds, _explain_micro_batches),
    Rule(
        "schedules that split the backward pass cannot be compiled",
        lambda job, c: np.isin(c.schedule, _SPLIT_BACKWARD) & (job.workload.implementation == "compiled"),
        lambda job, layout: (
            f"{layout.schedule} splits the backward pass, which torch.compile does not allow.",
            ("1f1b", "interleaved1f1b", "fused"),
        ),
        refused_by=EVERY,
    ),
    Rule(
        "PyTorch's 1f1b needs a micro-batch for each pipeline rank",
        _short_of_stages,
        _explain_micro_batches,
        refused_by=frozenset({"pytorch"}),
    ),
    Rule(
        "Megatron interleaves micro-batches in groups of the pipeline degree",
        _out_of_groups,
        _explain_micro_batches,
        refused_by=frozenset({"megatron"}),
    ),
    _foreign("megatron"),
    _foreign("deepspeed"),
    Rule(
        "DeepSpeed's pipeline refuses ZeRO-2 and ZeRO-3",
        lambda job, c: (c.pipeline > 1) & (c.zero_stage >= 2),
        lambda job, layout: (
            f"DeepSpeed's pipeline engine asserts a ZeRO stage below 2, not {layout.zero_stage}.",
            (f"zero1:{layout.shard}", f"ddp{layout.shard}"),
        ),
        refused_by=frozenset({"deepspeed"}),
    ),
)


def _uneven(job: Job, layout: Layout) -> str | None:
    layers, stages = job.model.layers, layout.stages
    if layout.stage_layers or layers % stages == 0:
        return None
    return (
        f"{layers} layers over {stages} stages: balanced here, some stages hold {layers // stages + 1} and some "
        f"{layers // stages}. Megatron refuses without --decoder-first/last-pipeline-num-layers or "
        "--pipeline-model-parallel-layout, and megatron-core of 2024 and before drops the remainder of an interleaved "
        "split; DeepSpeed balances by parameters."
    )


def _gathered_again(job: Job, layout: Layout) -> str | None:
    m = job.workload.global_batch // (layout.data * layout.micro_batch)
    if layout.pipeline == 1 or layout.zero_stage < 2 or m <= 1:
        return None
    if layout.zero_stage == 2:
        return (
            "In a pipeline PyTorch keeps gradients whole until the last micro-batch: ZeRO-2 saves nothing over ZeRO-1."
        )
    return f"With {m} micro-batches in a pipeline, each stage's parameters are gathered {m} times a step."


def _few_micro_batches(job: Job, layout: Layout) -> str | None:
    m = job.workload.global_batch // (layout.data * layout.micro_batch)
    if layout.pipeline == 1 or m >= layout.pipeline:
        return None
    return f"{m} micro-batches for {layout.pipeline} pipeline ranks: most of them idle most of the time."


def _tied(job: Job, layout: Layout) -> str | None:
    if not job.model.tied_embeddings or layout.pipeline == 1 or layout.schedule in V_SCHEDULES:
        return None
    return "The first and the last stage both keep the tied embedding, and sum its gradients each step."


NOTES: tuple[Note, ...] = (_uneven, _gathered_again, _few_micro_batches, _tied)
