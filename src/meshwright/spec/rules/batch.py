"""Rules of the product of degrees and of the batch, alike in torchtitan's ParallelDims, Megatron and DeepSpeed."""

from __future__ import annotations

from meshwright.spec.layout import Layout
from meshwright.spec.rules.nearby import refilled
from meshwright.spec.rules.rule import Job, Refusal, Rule, divisors, nearest


def _explain_devices(job: Job, layout: Layout) -> Refusal:
    have, other = job.cluster.devices, layout.context * layout.tensor * layout.pipeline
    plural = "" if layout.devices == 1 else "s"
    text = f"{layout} needs {layout.devices} device{plural}, {job.cluster.name} has {have}."
    if have % other:
        return text, [f"context × tensor × pipeline = {d}" for d in nearest(divisors(have), other)]
    return text, [str(refilled(layout, have // other))]


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


DEVICES = Rule(
    "the degrees do not multiply to the cluster's devices",
    lambda job, c: c.devices > job.cluster.devices if job.spare else c.devices != job.cluster.devices,
    _explain_devices,
)

RULES: tuple[Rule, ...] = (
    DEVICES,
    Rule(
        "the global batch is not a multiple of data-parallel ranks × micro-batch",
        lambda job, c: job.workload.global_batch % (c.data * c.micro_batch) != 0,
        _explain_batch,
    ),
)
