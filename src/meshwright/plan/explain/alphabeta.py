"""Collectives by latency and bandwidth."""

from __future__ import annotations

from meshwright.cost.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    groups,
    send_seconds,
)
from meshwright.plan.explain.common import columns, data_tiers, ladder, where
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.units import binary, duration, gb_per_s


def page(topic: str, given: Inputs) -> Page:
    """The account of the alpha-beta model."""
    d, size = given.ranks, given.size
    t = data_tiers(given, d)
    seconds = {
        "all-reduce": float(all_reduce_seconds(size, t)),
        "all-gather": float(all_gather_seconds(size, t)),
        "reduce-scatter": float(all_gather_seconds(size, t)),
        "all-to-all": float(all_to_all_seconds(size, t)),
        "send": float(send_seconds(size, groups(columns(replicate=d))["data"], given.cluster)),
    }
    waiting = float(all_reduce_seconds(0.0, t))
    whole = seconds["all-reduce"] - waiting
    even = size * waiting / whole if whole else 0.0
    rows = []
    for n in ladder(d):
        time = float(all_reduce_seconds(size, data_tiers(given, n)))
        small = float(all_reduce_seconds(0.0, data_tiers(given, n)))
        rows.append((f"{n}", duration(time), duration(small), gb_per_s(size / time) if time else "-"))
    return account(
        topic,
        "Alpha and beta: what a collective costs",
        what="A message of M bytes takes latency (alpha) + M / bandwidth (beta is the time of one byte). A "
        "collective is so many messages one after the other.",
        formula=(
            "ring all-reduce of M on d ranks: 2 (d-1) latency + 2 (d-1)/d x M / bandwidth",
            "ring all-gather or reduce-scatter: half of it",
            "a tree between nodes: log2 of the nodes in place of their number, for the latency",
            "bus bandwidth = 2 (d-1)/d x M / time: what to compare with the link",
        ),
        steps=(
            f"M = {binary(size)} ({size / 1e9:.3g} GB), d = {d}, {where(t)}",
            *(f"{name}: {duration(time)}" for name, time in seconds.items()),
            f"below {binary(even)} an all-reduce on {d} ranks is mostly latency ({duration(waiting)})",
        ),
        shown=table((">ranks", ">all-reduce", ">of it latency", ">M / time"), rows),
        sent="A rank sends 2 (d-1)/d x M for an all-reduce: hardly more on many ranks than on four.",
        saved="Time: join small tensors into buckets of several MiB.",
        use="To see whether bytes or the number of messages cost you time; then compare with nccl-tests "
        "on your machine.",
        avoid="As the last word: links are shared, and protocols switch with the size.",
        sources=("Thakur et al. 2005", "NVIDIA nccl-tests, doc/PERFORMANCE.md"),
        numbers={
            "size_bytes": size,
            "ranks": d,
            "seconds": seconds,
            "latency_seconds": waiting,
            "half_bandwidth_bytes": even,
        },
    )
