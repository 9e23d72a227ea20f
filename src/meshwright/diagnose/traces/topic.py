"""Kineto traces as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import Finding
from meshwright.diagnose.logs.line import rank_in_path
from meshwright.diagnose.topic import Stream, Topic
from meshwright.diagnose.traces.columns import Columns, number
from meshwright.diagnose.traces.ranks import Rank, Traces, label, shares
from meshwright.diagnose.traces.stream import TraceStream, looks_like_trace, plain_about

MOST_TOLD = 16


def _read(stream: BinaryIO, path: str, facts: Facts) -> int | None:
    rank = read_rank(stream, path)
    facts.of(Traces).ranks.append(rank)
    return rank.rank


def read_rank(stream: BinaryIO, path: str) -> Rank:
    """The rank whose trace a file holds. Raises TraceError: it is none."""
    from meshwright.diagnose.traces.summary import summarise

    trace, columns = TraceStream(stream), Columns()
    for events in trace.batches():
        if columns.full:
            columns.left_out += len(events)
        else:
            columns.add(events)
    rank, world, _ = plain_about(trace.about)
    devices = trace.about.get("deviceProperties")
    about = {
        "rank": rank_in_path("/".join(path.split("/")[-2:])) if rank is None else rank,
        "world": world,
        "base": (number(trace.about.get("baseTimeNanoseconds")) or 0.0) / 1e9,
        "devices": len(devices) if isinstance(devices, list) else 0,
    }
    left = f"{columns.left_out:,} events are more than are kept" if columns.left_out else ""
    return summarise(columns, about, path, "; ".join(one for one in (trace.problem, left) if one))


def _judged(facts: Facts) -> Iterator[Finding]:
    """All rules, if there is a trace: they need numpy, which takes as long to start as all the rest."""
    if facts.of(Traces).ranks:
        from meshwright.diagnose.traces.rules import RULES

        for rule in RULES:
            yield from rule(facts)


def _checked(facts: Facts) -> Iterator[str]:
    ranks = facts.of(Traces).ranks
    if ranks:
        yield (
            f"{len(ranks)} traces, {sum(len(one.steps) for one in ranks):,} steps, "
            f"{sum(len(one.collectives) for one in ranks):,} collectives: stragglers, launches, data loading, "
            "allocations, sizes and bandwidth of messages, balance of stages and experts"
        )
    for one in ranks[:MOST_TOLD]:
        compute, exposed, idle = shares(one)
        yield (
            f"{label(one)} ({one.path.rpartition('/')[2]}): computes {compute:.0%} of the time, communicates without "
            f"computing {exposed:.0%}, idle {idle:.0%}{_kernels(one)}"
        )
    if len(ranks) > MOST_TOLD:
        yield f"… and {len(ranks) - MOST_TOLD} more traces"
    if ranks:
        from meshwright.diagnose.traces.jobs import jobs
        from meshwright.diagnose.traces.network import told

        for job in jobs(ranks):
            yield from told(job)


def _kernels(rank: Rank) -> str:
    if not rank.on_gpu or not rank.steps:
        return ""
    delay = "" if rank.launch_delay is None else f", {rank.launch_delay * 1e6:.0f} us after their launch"
    most = max(step.kernels for step in rank.steps)
    return f"; {most:,} kernels a step of {rank.kernel_median * 1e6:.1f} us (median){delay}"


def _missing(facts: Facts) -> Iterator[str]:
    ranks = facts.of(Traces).ranks
    for one in ranks:
        if one.problem:
            yield f"a part of {one.path}: {one.problem}"


TRACES = Topic(
    "traces", rules=(_judged,), checked=_checked, missing=_missing, streams=(Stream("trace", looks_like_trace, _read),)
)
