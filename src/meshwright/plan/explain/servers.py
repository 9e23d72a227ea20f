"""Parameter servers, in step and not in step."""

from __future__ import annotations

import math
from typing import Any

from meshwright.cost.collectives import all_reduce_seconds
from meshwright.cost.servers import (
    JITTER,
    ServerRound,
    mean_staleness,
    server_bytes,
    server_round,
    server_seconds,
    worst_staleness,
)
from meshwright.cost.shares import RankParameters
from meshwright.plan.explain.common import columns, data_tiers, ladder
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.units import binary, count, duration, gib, percent


def page(topic: str, given: Inputs) -> Page:
    """The account of parameter servers, or of asynchronous workers."""
    return _asynchronous(topic, given) if topic == "async" else _servers(topic, given)


def _priced(given: Inputs, servers: int, staleness: int) -> tuple[ServerRound, float]:
    """One round, and the seconds of a step."""
    layout = columns(replicate=given.ranks, servers=servers, staleness=staleness)
    held = RankParameters(given.parameters, 0.0)
    moved = server_round(held, given.state_bytes, layout, given.cluster)
    exposed, _ = server_seconds(held, given.state_bytes, layout, given.cluster, given.compute_time)
    return moved, given.compute_time + float(exposed)


def _servers(topic: str, given: Inputs) -> Page:
    n, k, s = given.ranks, given.servers, given.state_bytes
    moved, step = _priced(given, k, given.staleness)
    holds = float(server_bytes(given.parameters, s, k))
    ring = float(all_reduce_seconds(given.parameters * s.reduce, data_tiers(given, n)))
    rows = []
    for servers in ladder(k, max(n, k)):
        one, time = _priced(given, servers, given.staleness)
        incast = float(one.push_seconds)
        rows.append((f"{servers}", gib(float(server_bytes(given.parameters, s, servers))),
                     binary(float(one.server_in)), duration(incast), duration(time)))  # fmt: skip
    return account(
        topic,
        "PS: parameter servers",
        what="n workers compute gradients; k servers each hold 1/k of the weights and optimizer states, add up the "
        "gradients, update, and hand the parameters out.",
        formula=(
            "a worker pushes N x gradient bytes and pulls N x parameter bytes a step",
            "a server receives n/k times a worker's push: incast = latency + n/k x push / bandwidth, for n > k",
            "in step: slowest worker's compute + push + update + pull",
        ),
        steps=(
            f"N = {count(given.parameters)}, n = {n} workers, k = {k} servers, staleness {given.staleness}",
            f"a worker pushes {binary(float(moved.push))} and pulls {binary(float(moved.pull))}",
            f"a server holds {gib(holds)} and receives {binary(float(moved.server_in))} a round: "
            f"{duration(float(moved.push_seconds))}",
            f"its updates take {duration(float(moved.update_seconds))} a round; with {duration(given.compute_time)} of "
            f"compute a step takes {duration(step)}",
            f"a ring all-reduce of the same gradients: {duration(ring)}",
        ),
        shown=table((">servers", ">held by each", ">received a round", ">push", ">step"), rows),
        sent="All gradients to the servers, all parameters back. With as many servers as workers the bytes are those "
        "of a ring; with fewer the servers' links are the bottleneck.",
        saved="Optimizer states leave the workers for the servers' host memory.",
        use="Sparse models (embeddings of which a step touches few rows), workers of different speed or that come and "
        "go, and when waiting for the slowest costs more than stale gradients (see async).",
        avoid="Dense models on equal devices with a fast network: a ring or ZeRO moves no more and has no bottleneck.",
        sources=("Li et al., OSDI 2014", "Dean et al., NIPS 2012"),
        numbers={
            "workers": n,
            "servers": k,
            "staleness": given.staleness,
            **_facts(moved),
            "server_bytes": holds,
            "step_seconds": step,
            "ring_all_reduce_seconds": ring,
        },
    )


def _asynchronous(topic: str, given: Inputs) -> Page:
    n, k = given.ranks, given.servers
    kinds = [*sorted({0, 1, 3, given.staleness} - {-1}), -1]
    rows, numbers = [], {}
    for staleness in kinds:
        moved, step = _priced(given, k, staleness)
        mean, worst = float(mean_staleness(n, staleness)), float(worst_staleness(n, staleness))
        name = {0: "in step", -1: "unbounded"}.get(staleness, f"at most {staleness} ahead")
        numbers[name] = {
            "step_seconds": step,
            "batches_per_second": n / step,
            "mean_staleness": mean,
            "worst_staleness": worst,
            **_facts(moved),
        }
        limit = "no limit" if math.isinf(worst) else f"{worst:g}"
        rows.append((name, duration(step), f"{n / step:.3g}", f"{mean:g}", limit))
    return account(
        topic,
        "Asynchronous workers: bounded staleness, Hogwild, Downpour",
        what="Workers push to parameter servers and go on. With bounded staleness s (SSP) a worker waits only for "
        "others that are more than s steps behind; without a bound it never waits.",
        formula=(
            "in step: compute x (1 + jitter x (H_n - 1)) + push + update + pull, H_n = 1 + 1/2 + ... + 1/n",
            "stale: max(compute + wait / sqrt(s+1), push, pull, updates of all n pushes)",
            "a gradient is late by n-1 updates on average; by 2 s (n-1) at most under SSP",
        ),
        steps=(
            f"n = {n} workers, k = {k} servers, {duration(given.compute_time)} of compute, N = "
            f"{count(given.parameters)}",
            f"jitter: {percent(JITTER)} of a step varies exponentially (assumed)",
        ),
        shown=table(("", ">step", ">batches/s", ">late by, mean", ">at most"), rows),
        sent="What parameter servers send, beside the compute.",
        saved="Time, not memory: waiting for stragglers, and traffic hidden behind compute.",
        use="Workers of unequal or changing speed, sparse updates that seldom meet, a small bound on staleness.",
        avoid="Equal devices: late gradients need smaller learning rates and more steps, which eats the gain.",
        sources=(
            "Ho et al., NIPS 2013 (SSP)",
            "Recht et al. 2011, arXiv:1106.5730 (Hogwild)",
            "Dean et al., NIPS 2012 (Downpour); Zhang et al. 2016, arXiv:1511.05950",
        ),
        numbers={"workers": n, "servers": k, "compute_seconds": given.compute_time, "kinds": numbers},
    )


def _facts(moved: ServerRound) -> dict[str, Any]:
    return {
        "push_bytes": float(moved.push),
        "pull_bytes": float(moved.pull),
        "server_in_bytes": float(moved.server_in),
        "push_seconds": float(moved.push_seconds),
        "update_seconds": float(moved.update_seconds),
        "pull_seconds": float(moved.pull_seconds),
    }
