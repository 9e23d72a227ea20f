"""DDP: nothing is split but the batch."""

from __future__ import annotations

from meshwright.cost.collectives import all_reduce_seconds
from meshwright.plan.explain.common import columns, data_flows, data_tiers, ladder, sent_bytes, states_on_rank, where
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.units import binary, count, duration, gib


def page(topic: str, given: Inputs) -> Page:
    """The account of distributed data parallelism."""
    states = given.state_bytes
    ranks, gradients = given.ranks, given.parameters * states.reduce
    held = sum(states_on_rank(given, columns(replicate=ranks)))
    sent = sent_bytes(data_flows(given, columns(replicate=ranks)))
    t = data_tiers(given, ranks)
    seconds = float(all_reduce_seconds(gradients, t))
    rows = []
    for d in ladder(ranks):
        time = float(all_reduce_seconds(gradients, data_tiers(given, d)))
        moved = sent_bytes(data_flows(given, columns(replicate=d)))
        rows.append((f"{d}", gib(held), binary(moved), duration(time)))
    return account(
        topic,
        "DDP: distributed data parallelism",
        what="The batch is split over d ranks. Each holds all parameters, gradients and optimizer states.",
        formula=(
            "memory of a rank = N x (parameter + gradient + optimizer bytes)",
            "sent by a rank in a step = 2 (d-1)/d x N x gradient bytes",
            "ring all-reduce = 2 (d-1) latency + 2 (d-1)/d x G / bandwidth",
        ),
        steps=(
            f"N = {count(given.parameters)} parameters, {states.total:g} bytes each: {gib(held)} on every rank",
            f"G = N x {states.reduce:g} bytes = {gib(gradients)} of gradients",
            f"d = {ranks}: a rank sends {binary(sent)} in a step, which takes {duration(seconds)} at {where(t)}",
        ),
        shown=table((">ranks", ">states", ">sent a step", ">all-reduce"), rows),
        sent="The gradients once a step, in buckets, while backward still runs: most of it can be hidden. "
        "Micro-batches but the last need no reduction (no_sync).",
        saved="Nothing: memory does not depend on the number of ranks.",
        use="The model with its states and activations fits one device. It is the simplest and moves the fewest bytes.",
        avoid="States fill the device: ZeRO-1 moves the same bytes and needs less. One sequence a rank is too much "
        "for the batch that learns well.",
        sources=("Li et al. 2020, arXiv:2006.15704", "Thakur et al. 2005 (ring all-reduce)"),
        numbers={
            "parameters": given.parameters,
            "ranks": ranks,
            "state_bytes_per_rank": held,
            "gradient_bytes": gradients,
            "sent_bytes_per_step": sent,
            "all_reduce_seconds": seconds,
        },
    )
