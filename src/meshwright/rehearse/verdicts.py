"""Verdicts: the best layouts of a plan, each rehearsed, and whether the program bears the plan out.

The plan may be made for other software than ours (a class of software, docs/software.md), so its peak and ours differ;
what is judged is its answer: whether the layout fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.cost.result import DOES_NOT_FIT, Estimate
from meshwright.cost.verdict import with_reserve
from meshwright.rehearse.compare import compare_rank
from meshwright.rehearse.job import make_job
from meshwright.rehearse.session import STAGE_FIRSTS, ranks_of, rehearse_ranks
from meshwright.spec.errors import RequestError

NEAR = 0.1
"""Peaks that differ by less are told without a word."""
CONFIRMED, CONTRADICTED, NOT_RUN = "confirmed", "contradicted", "not rehearsed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One layout of a plan."""

    layout: str
    verdict: str
    """confirmed, contradicted, not rehearsed."""
    reason: str
    planned_bytes: float
    rehearsed_bytes: float | None = None
    """Peak of the fullest of the ranks that were rehearsed: the first of each pipeline rank."""


def verdict_of(model: str, cluster: str, estimate: Estimate) -> Verdict:
    """Rehearse one layout of a plan for the model and the cluster that were asked for by these words."""
    workload, memory = estimate.workload, estimate.memory
    told = str(estimate.layout)
    try:
        job = make_job(
            model, cluster, told, seq_len=workload.seq_len, global_batch=workload.global_batch,
            precision=workload.precision, optimizer=workload.optimizer,
        )  # fmt: skip
        found = rehearse_ranks(job, ranks_of(job.layout, STAGE_FIRSTS))
    except RequestError as error:
        return Verdict(told, NOT_RUN, str(error), memory.peak_bytes)
    peak = max(one.peak_bytes for one in found)
    wrong = [line.name for one in found for line in compare_rank(job, one) if not line.agrees]
    need = float(with_reserve(peak, estimate.cluster.device))
    fits, planned = need <= memory.capacity_bytes, memory.verdict != DOES_NOT_FIT
    if wrong:
        return Verdict(told, CONTRADICTED, f"formula and program differ in {', '.join(wrong)}", memory.peak_bytes, peak)
    if fits != planned:
        reason = "our program does not fit" if planned else "our program fits"
        return Verdict(told, CONTRADICTED, reason, memory.peak_bytes, peak)
    off = peak / memory.peak_bytes - 1
    reason = f"the program needs {abs(off):.0%} {'more' if off > 0 else 'less'}" if abs(off) > NEAR else ""
    return Verdict(told, CONFIRMED, reason, memory.peak_bytes, peak)
