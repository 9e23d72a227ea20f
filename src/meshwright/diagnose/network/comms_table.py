"""DeepSpeed's summary of communication (`deepspeed.comm.log_summary`), its bandwidths recomputed.

Its own columns take the size of the world for every group, multiply sizes of all-gathers and reduce-scatters by it, and
changed their formula between versions (deepspeed/utils/comms_logging.py, calc_bw_log); so only sizes, counts and times
are read. Each operation is followed by a synchronisation while it is logged, so times are no overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.line import Line
from meshwright.spec.collective import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, REDUCE_SCATTER, SEND, bus_factor
from meshwright.spec.units import binary

KIND = "DeepSpeed communication summary"
SMALL = 10e6
"""Bytes below which a collective is bound by latency on current fabrics (research: half bandwidth at 1 to 10 MB)."""
HALF = 0.5
"""Share of the time in such messages from which they are what to change: below it, larger ones gain more."""
LEAST_MS = 100.0
"""Milliseconds in all below which a summary is of a few steps and judged not at all."""
WAITING = 0.5
"""Share of a rank's time in collectives that it waited for the last rank to come."""

_HEADER = re.compile(r"Comm\. Op\s+Message Size")
_ROW = re.compile(
    r"(?<![\d.])(\d[\d.]{0,15})\s*([KMGT]?)B\s+(\d{1,12})\s+([\d.]{1,20})((?:\s+-?[\d.]+(?:e[+-]?\d+)?)*)\s*$"
)
_NAME = re.compile(r"(?:^|\s)([a-z][a-z_0-9]{3,40})\s*$")
_SCALE = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_OPERATIONS = (
    ("all_gather", ALL_GATHER), ("allgather", ALL_GATHER), ("reduce_scatter", REDUCE_SCATTER),
    ("all_to_all", ALL_TO_ALL), ("all_reduce", ALL_REDUCE), ("allreduce", ALL_REDUCE), ("broadcast", BROADCAST),
    ("send", SEND), ("recv", SEND),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Op:
    """One operation at one size."""

    name: str
    bytes: float
    """Of the message as DeepSpeed counts it: what a rank holds before (all-gather) or gives in."""
    count: int
    total_ms: float
    straggler_ms: float | None
    """Of `total_ms`, waited for the last rank to come; None: not logged."""

    @property
    def bytes_per_s(self) -> float | None:
        """Algorithm bandwidth: size over time. None: no time, or nothing sent."""
        return self.bytes * self.count / (self.total_ms * 1e-3) if self.total_ms > 0 and self.bytes > 0 else None

    def bus_bytes_per_s(self, ranks: int) -> float | None:
        """Bus bandwidth in a group of `ranks`; the caller says how large the operation's group is."""
        operation = next((known for start, known in _OPERATIONS if start in self.name), None)
        rate = self.bytes_per_s
        if rate is None or operation is None or ranks < 2:
            return None
        # An all-gather's message is one rank's part, nccl-tests' size that of the whole.
        return rate * bus_factor(operation, ranks) * (ranks if operation == ALL_GATHER else 1)


@dataclass
class Summary:
    """The table of one file and rank; a later one in the same file replaces it, as it counts from the start."""

    first: Line
    has_straggler: bool
    ops: list[Op] = field(default_factory=list)
    name: str = ""


@dataclass
class Summaries:
    """By file and rank."""

    of: dict[tuple[str, int | None], Summary] = field(default_factory=dict)


def collect(line: Line, facts: Facts) -> str:
    """Takes a header, an operation's name, or a row."""
    known, key = facts.of(Summaries), (line.path, line.rank)
    if "Comm. Op" in line.text and _HEADER.search(line.text):
        known.of[key] = Summary(line, "straggler" in line.text.lower())
        return KIND
    table = known.of.get(key)
    if table is None:
        return ""
    if row := _ROW.search(line.text):
        if table.name and len(table.ops) < 4096 and (op := _op(table, row)):
            table.ops.append(op)
    elif name := _NAME.search(line.text):
        table.name = name[1]
    return ""


def _op(table: Summary, row: re.Match[str]) -> Op | None:
    try:
        more = [float(one) for one in row[5].split()]
        size, total = float(row[1]) * _SCALE[row[2]], float(row[4])
    except ValueError:
        return None
    # With stragglers shown in the table itself the second column of times is theirs (total, straggler, average, …).
    return Op(table.name, size, int(row[3]), total, more[0] if table.has_straggler and len(more) >= 4 else None)


def find_small_messages(facts: Facts) -> list[Finding]:
    """More than half of the time in messages that latency rules."""
    return [one for key, table in facts.of(Summaries).of.items() if (one := _small(key[1], table)) is not None]


def _small(rank: int | None, table: Summary) -> Finding | None:
    ops = [one for one in table.ops if one.bytes > 0]
    total, small = sum(one.total_ms for one in ops), [one for one in ops if one.bytes < SMALL]
    share = sum(one.total_ms for one in small) / total if total >= LEAST_MS else 0.0
    if share <= HALF:
        return None
    worst = max(small, key=lambda one: one.total_ms)
    return Finding(
        "small_messages", WARNING, LIKELY, (),
        f"{share:.0%} of {total / 1e3:.1f} s of communication is in messages below {SMALL / 1e6:g} MB, most in "
        f"{worst.count:,} {worst.name} of {binary(worst.bytes)} at {(worst.bytes_per_s or 0.0) / 1e9:.2f} GB/s: "
        "latency, not bandwidth.",
        (_head(table, rank),),
        "The same sizes in nccl-tests: the curve tells what larger messages would reach.",
        (
            "Larger buckets: reduce_bucket_size and allgather_bucket_size of 5e8 (DDP: bucket_cap_mb=100).",
            "ZeRO-3: stage3_param_persistence_threshold and stage3_prefetch_bucket_size up; leaf modules for experts.",
        ),
        weight=1,
    )  # fmt: skip


def _head(table: Summary, rank: int | None) -> Evidence:
    return Evidence(table.first.path, table.first.text.strip()[:200], table.first.number, rank=rank)


def find_late_ranks(facts: Facts) -> list[Finding]:
    """Who waits least in collectives is who comes last. DeepSpeed's straggler time is the sum of t - min over ranks."""
    waited = {
        rank: (sum(one.straggler_ms or 0.0 for one in table.ops), sum(one.total_ms for one in table.ops), table)
        for (_, rank), table in facts.of(Summaries).of.items()
        if rank is not None and any(one.straggler_ms is not None for one in table.ops)
    }
    return list(_late(waited)) if len(waited) > 1 else []


def _late(waited: dict[int, tuple[float, float, Summary]]) -> Iterator[Finding]:
    least = min(waited, key=lambda rank: waited[rank][0])
    others = [waited[rank] for rank in waited if rank != least]
    share = sum(one[0] for one in others) / (sum(one[1] for one in others) or 1.0)
    if share >= WAITING and waited[least][0] < min(one[0] for one in others) / 2:
        yield Finding(
            "straggler_gpu", WARNING, POSSIBLE, (least,),
            f"The other ranks spend {share:.0%} of their time in collectives waiting for rank {least}, which waits "
            "least.",
            (_head(waited[least][2], least),),
            f"A trace of rank {least}: data, another process on its cores, a slower device (nvidia-smi -q -d CLOCK).",
            (f"Compare clocks, temperature and data loading of rank {least} with the others'.",),
        )  # fmt: skip


def find_wrong_bandwidths(facts: Facts) -> list[Finding]:
    """That the table's own bandwidths must not be compared with a link: told, as people do compare them."""
    for (_, rank), table in facts.of(Summaries).of.items():
        if table.ops:
            told = Finding(
                "tooling", INFO, LIKELY, (),
                "DeepSpeed's table computes bandwidths with the size of the world for every group and in Gbit/s: those "
                "of tensor, expert or hierarchical groups are wrong. Here they are computed from size and time.",
                (_head(table, rank),),
                change=("Compare size / time with nccl-tests' algbw at the same size and group.",),
            )  # fmt: skip
            return [told]
    return []
