"""What a job's collectives reach, beside what nccl-tests measured on the same machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from statistics import median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.network.measured import rows_of
from meshwright.diagnose.traces.jobs import jobs
from meshwright.diagnose.traces.network import SMALL, Transfer, transfers
from meshwright.diagnose.traces.ranks import Rank, Traces
from meshwright.spec.collective import Row, bus_factor

HALF = 0.5
"""Of the measured bandwidth. Kernels that compute meanwhile take a part of it: 10 to 30 % where they overlap."""
NEAR = 4.0
"""A measured size stands for sizes up to so many times larger or smaller."""
FEWEST = 4
"""Collectives of one kind and size."""


def below_measured(facts: Facts) -> Iterator[Finding]:
    """Large collectives, none of whose time is waiting, far below nccl-tests' bandwidth at that size and group."""
    curve = [row for row in rows_of(facts) if row.seconds]
    for job in jobs(facts.of(Traces).ranks) if curve else ():
        rank = next((one for one in job if one.collectives), None)
        by_size: dict[tuple[str, int, float], list[Transfer]] = {}
        for one in transfers(job):
            if one.by_members and one.bandwidth and (one.call.bytes or 0.0) >= SMALL:
                by_size.setdefault((one.call.kind, one.call.size or 0, one.call.bytes or 0.0), []).append(one)
        for (kind, ranks, size), same in sorted(by_size.items()):
            row = _nearest(curve, kind, ranks, size)
            if rank is not None and row is not None and len(same) >= FEWEST:
                yield from _compared(rank, kind, ranks, size, median(one.bandwidth or 0.0 for one in same), row)


def _nearest(curve: Sequence[Row], kind: str, ranks: int, size: float) -> Row | None:
    fitting = [row for row in curve if row.operation == kind and row.line.ranks == ranks and row.bytes > 0]
    best = min(fitting, key=lambda row: abs(log(row.bytes / size)), default=None)
    return best if best is not None and abs(log(best.bytes / size)) <= log(NEAR) else None


def _compared(rank: Rank, kind: str, ranks: int, size: float, reached: float, row: Row) -> Iterator[Finding]:
    measured = (row.algorithm_bytes_per_s or 0.0) * bus_factor(kind, ranks)
    if reached >= HALF * measured:
        return
    yield Finding(
        "slow_network_other", WARNING, POSSIBLE, (),
        f"{kind} of {size / 1e6:.0f} MB over {ranks} ranks reaches {reached / 1e9:.1f} GB/s on the bus in the job and "
        f"{measured / 1e9:.1f} GB/s in nccl-tests ({row.bytes / 1e6:.0f} MB).",
        (Evidence(rank.path, f"{kind} of {size / 1e6:.0f} MB: {reached / 1e9:.1f} GB/s, no waiting", rank=rank.rank),),
        "nccl-tests on the job's own nodes while nothing else runs there.",
        ("Look for another job on the same links, and for kernels that take the device's units from the collective.",
         "The same NCCL settings in the job as in the test (NCCL_* variables)."),
    )  # fmt: skip
