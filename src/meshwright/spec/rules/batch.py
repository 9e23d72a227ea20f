"""Rules of the product of degrees and of the batch, alike in torchtitan's ParallelDims, Megatron and DeepSpeed."""

from __future__ import annotations

from dataclasses import replace

from meshwright.spec.layout import Layout
from meshwright.spec.rules.rule import Job, Refusal, Rule, divisors, nearest


def _explain_devices(job: Job, layout: Layout) -> Refusal:
    have, other = job.cluster.devices, layout.context * layout.tensor * layout.pipeline
    text = f"{layout} needs {layout.devices} devices, {job.cluster.name} has {have}."
    if have % other:
        return text, [f"context × tensor × pipeline = {d}" for d in nearest(divisors(have), other)]
    return text, [str(fitting) for fitting in _refilled(layout, have // other)]


def _refilled(layout: Layout, data: int) -> list[Layout]:
    """The layout with `data` data-parallel ranks: replicas kept if they can be, else dropped."""
    if not layout.zero_stage:
        return [replace(layout, replicate=data)]
    kept = layout.replicate if data % layout.replicate == 0 else 1
    return [replace(layout, replicate=kept, shard=data // kept, secondary_shard=0)]


def _explain_batch(job: Job, layout: Layout) -> Refusal:
    batch, unit = job.workload.global_batch, layout.data * layout.micro_batch
    text = (
        f"A global batch of {batch} is not a multiple of {unit}: {layout.data} data-parallel ranks × "
        f"micro-batches of {layout.micro_batch}."
    )
    legal = [f"global batch {b}" for b in (batch // unit * unit, (batch // unit + 1) * unit) if b]
    if batch % layout.data == 0:
        legal += [f"mbs{m}" for m in nearest(divisors(batch // layout.data), layout.micro_batch, 2)]
    return text, legal


RULES: tuple[Rule, ...] = (
    Rule(
        "the degrees do not multiply to the cluster's devices",
        lambda job, c: c.devices > job.cluster.devices if job.spare else c.devices != job.cluster.devices,
        _explain_devices,
    ),
    Rule(
        "the global batch is not a multiple of data-parallel ranks × micro-batch",
        lambda job, c: job.workload.global_batch % (c.data * c.micro_batch) != 0,
        _explain_batch,
    ),
)
