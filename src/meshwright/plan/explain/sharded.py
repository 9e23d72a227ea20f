"""FSDP and HSDP: parameters gathered layer by layer, in one group or in replicated groups."""

from __future__ import annotations

from meshwright.plan.explain.common import (
    columns,
    data_flows,
    flow_seconds,
    ladder,
    sent_bytes,
    states_on_rank,
    zero_layout,
)
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.errors import RequestError
from meshwright.spec.units import binary, count, duration, gib

SOURCES = ("Zhao et al. 2023, arXiv:2304.11277", "Rajbhandari et al. 2020, arXiv:1910.02054 section 7.2.2")


def page(topic: str, given: Inputs) -> Page:
    """The account of fully sharded or hybrid sharded data parallelism."""
    return _hsdp(topic, given) if topic == "hsdp" else _fsdp(topic, given)


def _fsdp(topic: str, given: Inputs) -> Page:
    d, m, s = given.ranks, given.micro_batches, given.state_bytes
    layout = zero_layout(3, d)
    held = sum(states_on_rank(given, layout))
    once, step = data_flows(given, layout), data_flows(given, layout, m)
    layer = given.parameters / given.layers * s.compute
    rows = []
    for n in ladder(d):
        flows = data_flows(given, zero_layout(3, n), m)
        shard = sum(states_on_rank(given, zero_layout(3, n)))
        rows.append((f"{n}", gib(shard), binary(sent_bytes(flows)), duration(flow_seconds(flows))))
    return account(
        topic,
        "FSDP: fully sharded data parallelism (ZeRO-3)",
        what="Every parameter, gradient and optimizer state is split over d ranks. A layer's parameters are gathered "
        "before its forward and again before its backward, and dropped after; its gradients are scattered.",
        formula=(
            "memory of a rank = N x bytes / d + the gathered layers",
            "sent by a rank for a micro-batch = (d-1)/d x N x (2 x parameter bytes + gradient bytes)",
        ),
        steps=(
            f"N = {count(given.parameters)} parameters of {s.total:g} bytes over d = {d} ranks: {gib(held)} a rank",
            f"one of {given.layers} layers gathered: {binary(layer)}; with the next one prefetched: "
            f"{binary(2 * layer)}",
            f"a micro-batch sends {binary(sent_bytes(once))}, the step's {m} micro-batches {binary(sent_bytes(step))}",
            f"hidden only if forward and backward of a micro-batch take longer than {duration(flow_seconds(once))}",
        ),
        shown=table((">ranks", ">states", f">sent, {m} micro-batches", ">time, none hidden"), rows),
        sent="All-gathers of each layer's parameters in forward and backward, a reduce-scatter of its gradients. One "
        "large micro-batch sends the least: every micro-batch pays again.",
        saved="All states fall as 1/d; what stays is the gathered layers and the activations.",
        use="States do not fit and each layer computes longer than its gather takes: large layers, long sequences, a "
        "fast network. Works without changing the model.",
        avoid="Many small micro-batches, a slow network between nodes (see hsdp), or a pipeline on top.",
        sources=SOURCES,
        numbers={
            "parameters": given.parameters,
            "ranks": d,
            "micro_batches": m,
            "state_bytes_per_rank": held,
            "gathered_layer_bytes": layer,
            "sent_bytes_per_micro_batch": sent_bytes(once),
            "sent_bytes_per_step": sent_bytes(step),
            "seconds_per_micro_batch": flow_seconds(once),
        },
    )


def _hsdp(topic: str, given: Inputs) -> Page:
    total, replicas, m = given.ranks, given.replicas, given.micro_batches
    splits = [r for r in ladder(replicas, total) if total % r == 0]
    if total % replicas:
        raise RequestError(f"{replicas} replicas do not divide {total} ranks.", [str(r) for r in splits])
    rows, chosen = [], {}
    for r in splits:
        layout = columns(replicate=r, shard=total // r, zero_stage=3)
        flows = data_flows(given, layout, m)
        across = sent_bytes(f for f in flows if f.collective == "all-reduce")
        facts = {
            "state_bytes_per_rank": sum(states_on_rank(given, layout)),
            "sent_inside_group": sent_bytes(flows) - across,
            "sent_between_groups": across,
            "seconds": flow_seconds(flows),
        }
        rows.append(
            (f"hsdp{r}x{total // r}", gib(facts["state_bytes_per_rank"]), binary(facts["sent_inside_group"]),
             binary(across), duration(facts["seconds"]))
        )  # fmt: skip
        if r == replicas:
            chosen = facts
    return account(
        topic,
        "HSDP: sharded inside groups, replicated between them",
        what=f"The {total} ranks form {replicas} groups of {total // replicas}. A group shares all states like FSDP; "
        "the groups hold the same and average their gradients.",
        formula=(
            "memory of a rank = N x bytes / s for groups of s ranks",
            "inside the group, every micro-batch: (s-1)/s x N x (2 x parameter bytes + gradient bytes)",
            "between r groups, once a step: 2 (r-1)/r x N x gradient bytes / s",
        ),
        steps=(
            f"N = {count(given.parameters)} parameters, groups of s = {total // replicas}: "
            f"{gib(chosen['state_bytes_per_rank'])} a rank",
            f"{m} micro-batches send {binary(chosen['sent_inside_group'])} inside the group",
            f"and {binary(chosen['sent_between_groups'])} to the other groups",
        ),
        shown=table(("layout", ">states", ">sent inside", ">sent between", ">time, none hidden"), rows),
        sent="What FSDP sends stays inside a group, which is best one node; only a rank's shard of the gradients "
        "crosses the groups, once a step.",
        saved="States fall with the size of the group only: this is memory given for traffic.",
        use="A group fits the model's states in one node (or a few), and the network between nodes is much slower.",
        avoid="One node, or states that need every rank to fit.",
        sources=(SOURCES[0], "Zhang et al. 2022 (MiCS), arXiv:2205.00119"),
        numbers={"parameters": given.parameters, "ranks": total, "replicas": replicas, "micro_batches": m, **chosen},
    )
