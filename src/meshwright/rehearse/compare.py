"""Compare: a rehearsed rank beside what the formulas say of it, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.cost.rank_flops import rank_flops
from meshwright.cost.result import Estimate
from meshwright.cost.wire import WireOptions, compare, wire
from meshwright.cost.wire.held import held
from meshwright.rehearse.result import RankRehearsal
from meshwright.train.config.devices import is_accelerator
from meshwright.train.config.job import Job

EXACT = 1e-9
"""Rounding of a division."""


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


def compare_rank(job: Job, found: RankRehearsal, estimate: Estimate | None, imbalance: float = 1.0) -> list[Line]:
    """The lines of one rank."""
    lines = _states(job, found)
    if job.layout.recompute == "none":
        lines += _flops(job, found)
    lines += _traffic(job, found, imbalance)
    if estimate is not None and _fullest(job, found):
        lines.append(Line("peak memory", "bytes", found.peak_bytes, estimate.memory.peak_bytes, None))
    return lines


def confirmed(lines: Sequence[Line]) -> bool:
    """Whether every line agrees."""
    return all(line.agrees for line in lines)


def _states(job: Job, found: RankRehearsal) -> list[Line]:
    formulas = held(job.model, job.layout, found.rank, job.config.optimizer.name)
    return [Line(name, "bytes", found.states[name], formulas[name], EXACT) for name in formulas]


def _flops(job: Job, found: RankRehearsal) -> list[Line]:
    gpu = job.cluster is not None and is_accelerator(job.cluster.device.name)
    formulas = rank_flops(job.model, job.workload, job.layout, found.rank, filled=not gpu)
    done = dict.fromkeys(formulas, 0.0)
    for kinds in found.flops.values():
        for kind, flops in kinds.items():
            done[kind] = done.get(kind, 0.0) + flops
    judged = EXACT if job.model.experts is None else None
    return [
        Line(f"{kind} FLOPs", "flops", flops, formulas.get(kind), judged if kind == "matmul" else EXACT)
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


def _fullest(job: Job, found: RankRehearsal) -> bool:
    """Whether the Estimate's peak is of this rank: it is of the fullest pipeline rank, mostly the first."""
    return job.layout.pipeline == 1 or found.pipeline_rank == 0
