"""Rules of ZeRO, ZeRO++ and offload that depend on the cluster or on the runtime."""

from __future__ import annotations

from typing import Any

from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import Layout
from meshwright.spec.rules.rule import Job, Note, Refusal, Rule, divisors, nearest


def _explain_secondary(job: Job, layout: Layout) -> Refusal:
    room = job.cluster.devices_per_node // layout.tensor
    text = (
        f"hpz{layout.secondary_shard} × {layout.tensor} tensor ranks leaves the node of "
        f"{job.cluster.devices_per_node} devices: the second copy would save no network traffic."
    )
    fitting = [d for d in divisors(layout.shard) if 1 < d <= room]
    return text, [f"hpz{d}" for d in nearest(fitting, layout.secondary_shard)] or ["no hpz"]


def offloads_apart(c: LayoutColumns) -> Any:
    """Where states are offloaded in another way than PyTorch does it."""
    return (
        (c.offload_optimizer != c.offload_parameters)
        | (c.offload_nvme > 0)
        | ((c.offload_optimizer > 0) & (c.zero_stage != 3))
    )


def explain_offload(layout: Layout) -> Refusal:
    """How PyTorch offloads."""
    text = "FSDP2's CPUOffloadPolicy moves parameters, gradients and optimizer states together."
    return text, (f"fsdp{layout.data} offload:optimizer+parameters",)


RULES: tuple[Rule, ...] = (
    Rule(
        "the secondary shard leaves the node",
        lambda job, c: (c.secondary_shard > 0) & (c.secondary_shard * c.tensor > job.cluster.devices_per_node),
        _explain_secondary,
    ),
    Rule(
        "ZeRO++ is DeepSpeed's",
        lambda job, c: c.quantized_weights + c.quantized_gradients + c.secondary_shard > 0,
        lambda job, layout: ("Only DeepSpeed has ZeRO++ (quant, hpz).", (f"fsdp{layout.data}",)),
        refused_by=frozenset({"pytorch", "megatron"}),
    ),
    Rule(
        "PyTorch offloads parameters, gradients and optimizer together",
        lambda job, c: offloads_apart(c),
        lambda job, layout: explain_offload(layout),
        refused_by=frozenset({"pytorch"}),
    ),
)


def _fsdp_in_megatron(job: Job, layout: Layout) -> str | None:
    if layout.zero_stage != 3:
        return None
    trouble = {
        "pipeline parallelism": layout.pipeline > 1,
        "expert parallelism": layout.expert > 1,
        "tied embeddings": job.model.tied_embeddings,
        "fp16": job.workload.precision == "fp16",
    }
    named = [name for name, found in trouble.items() if found]
    return f"Megatron's --use-torch-fsdp2 refuses {', '.join(named)}; --use-megatron-fsdp does not." if named else None


NOTES: tuple[Note, ...] = (_fsdp_in_megatron,)
