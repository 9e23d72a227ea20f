"""Compare: a rehearsed rank beside what the formulas say of it, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.cost.program.estimate import counts
from meshwright.cost.program.memory import rank_kept, rank_peak
from meshwright.cost.rank_flops import rank_flops
from meshwright.cost.wire import WireOptions, compare, wire
from meshwright.cost.wire.held import held
from meshwright.rehearse.result import RankRehearsal
from meshwright.train.config.job import Job

EXACT = 1e-9
"""Rounding of a division."""
KEPT_TOLERANCE = 0.03
"""Of what waits for backward."""
PEAK_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Line:
    """One number, twice."""

    name: str
    unit: str
    """bytes, flops, collectives."""
    rehearsed: float
    formula: float | None
    """None: the formulas say nothing of it."""
    tolerance: float | None
    """Relative difference that is none; None: it is shown and not judged."""

    @property
    def difference(self) -> float | None:
        """Formula / rehearsed - 1."""
        if self.formula is None:
            return None
        if not self.rehearsed:
            return 0.0 if not self.formula else float("inf")
        return self.formula / self.rehearsed - 1

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance, or not judged."""
        off = self.difference
        return off is None or self.tolerance is None or abs(off) <= self.tolerance


def compare_rank(job: Job, found: RankRehearsal, imbalance: float = 1.0) -> list[Line]:
    """The lines of one rank."""
    return [
        *_states(job, found),
        *_memory(job, found, imbalance),
        *_flops(job, found, imbalance),
        *_traffic(job, found, imbalance),
    ]


def confirmed(lines: Sequence[Line]) -> bool:
    """Whether every line agrees."""
    return all(line.agrees for line in lines)


def _states(job: Job, found: RankRehearsal) -> list[Line]:
    formulas = held(job.model, job.layout, found.rank, job.config.optimizer.name)
    return [Line(name, "bytes", found.states[name], formulas[name], EXACT) for name in formulas]


def _memory(job: Job, found: RankRehearsal, imbalance: float) -> list[Line]:
    """What waits for backward, and the peak of a step that is not the first.

    Not judged: uneven experts, layers of different windows, relu, which keeps its result alone; peaks that are not
    counted.
    """
    gpu, optimizer = job.for_gpus, job.config.optimizer.name
    even = imbalance == 1.0 and len(set(found.windows)) == 1 and not found.activation.startswith("relu")
    kept = rank_kept(job.model, job.workload, job.layout, found.rank, gpu=gpu)
    waiting = Line(
        "activations of a micro-batch", "bytes", sum(found.kept.values()), kept, KEPT_TOLERANCE if even else None
    )
    if not counts(job.layout, optimizer):
        return [waiting, Line("peak memory", "bytes", found.peak_bytes, None, None)]
    peak = rank_peak(job.model, job.workload, job.layout, found.rank, found.micro_batches, optimizer, gpu=gpu)
    return [
        waiting,
        Line(
            "peak memory",
            "bytes",
            found.peak_bytes,
            peak.bytes,
            PEAK_TOLERANCE if even and len(found.step_peaks) > 1 else None,
        ),
    ]


def _flops(job: Job, found: RankRehearsal, imbalance: float) -> list[Line]:
    formulas = rank_flops(job.model, job.workload, job.layout, found.rank, gpu=job.for_gpus, balance=found.balanced)
    done = dict.fromkeys(formulas, 0.0)
    for kinds in found.flops.values():
        for kind, flops in kinds.items():
            done[kind] = done.get(kind, 0.0) + flops
    judged = EXACT if imbalance == 1.0 else None
    attention = None if any(0 < window < job.workload.seq_len for window in found.windows) else EXACT
    return [
        Line(f"{kind} FLOPs", "flops", flops, formulas.get(kind), judged if kind == "matmul" else attention)
        for kind, flops in done.items()
    ]


def _traffic(job: Job, found: RankRehearsal, imbalance: float) -> list[Line]:
    options = WireOptions.of(job.workload, job.layout.zero_stage)
    expected = wire(job.model, job.workload, job.layout, found.rank, options)
    lines = []
    for row in compare(job.model, job.layout, found.traffic, expected):
        name, judged = f"{row.axis} {row.collective}", None if row.approximate and imbalance != 1.0 else EXACT
        lines.append(Line(name, "bytes", row.bytes, row.expected_bytes, judged))
        if row.expected_count:
            lines.append(Line(name, "collectives", float(row.count), float(row.expected_count), EXACT))
    return lines
