"""Where a device's memory goes."""

from __future__ import annotations

from meshwright.cost.memory import INSTANTS, layer_activations, peak_memory
from meshwright.cost.verdict import verdict
from meshwright.plan.explain.common import zero_layout
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.implementation import load_implementation
from meshwright.spec.units import binary, gib
from meshwright.spec.workload import make_workload


def page(topic: str, given: Inputs) -> Page:
    """The account of a device's memory, part by part and instant by instant."""
    layout = zero_layout(given.zero, given.ranks, recompute=given.recompute, micro_batch=given.micro_batch)
    work = make_workload(given.seq_len, given.ranks * given.micro_batch, causal=given.model.causal, states=given.states)
    software = load_implementation(work.implementation)
    peak = peak_memory(given.model, given.cluster, work, layout, software)
    capacity = given.cluster.device.memory_bytes
    last = peak.ranks[-1]
    instants = {name: {part: float(size) for part, size in last.at(name).items()} for name in INSTANTS}
    names = list(dict.fromkeys(part for parts in instants.values() for part, size in parts.items() if size))
    rows = [
        (name, *(_shown(instants[name].get(part, 0.0)) for part in names), gib(sum(instants[name].values())))
        for name in INSTANTS
    ]
    s = given.state_bytes
    layer = float(layer_activations(given.model, work, layout, int(layout.recompute)))
    reserved = float(peak.reserved)
    instant = INSTANTS[int(peak.instant)]
    return account(
        topic,
        "Where a device's memory goes",
        what="States live all the time; activations grow in forward and shrink in backward; logits, gathered layers "
        "and temporaries come and go. The fullest instant counts.",
        formula=(
            f"states = parameters x {s.total:g} bytes (shared by ZeRO; see zero)",
            "activations = layers x bytes a layer keeps x micro-batches in flight (see recompute)",
            "logits = tokens x vocabulary x the bytes that the loss has alive at once",
        ),
        steps=(
            f"ZeRO stage {given.zero} on {given.ranks} ranks, recomputation {given.recompute}, "
            f"{given.micro_batch} x {given.seq_len} tokens",
            f"a layer keeps {binary(layer)}; {given.layers} layers",
            f"peak at: {instant}, {gib(float(peak.bytes))}",
            f"with fragmentation, context and NCCL buffers {gib(reserved)} of {gib(capacity)}: "
            f"{verdict(reserved, capacity)}",
        ),
        shown=table(("instant", *(f">{name}" for name in names), ">all"), rows),
        saved="In this order: a smaller micro-batch, ZeRO-1, selective recomputation, tensor parallelism with sequence "
        "parallelism, FSDP, full recomputation, offload.",
        use="Before renting devices. `meshwright estimate` gives the same for any layout.",
        avoid="Filling a device to the last GiB: lengths vary, and the allocator fragments.",
        sources=("Rajbhandari et al. 2020, arXiv:1910.02054 section 3", "Korthikanti et al. 2022, arXiv:2205.05198"),
        numbers={
            "peak_bytes": float(peak.bytes),
            "reserved_bytes": reserved,
            "capacity_bytes": capacity,
            "peak_instant": instant,
            "instants": instants,
            "activation_bytes_per_layer": layer,
        },
    )


def _shown(size: float) -> str:
    return gib(size) if size else ""
