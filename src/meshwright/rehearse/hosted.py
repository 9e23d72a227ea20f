"""Hosted: what a rank keeps in the host's memory, beside the formulas."""

from __future__ import annotations

from meshwright.cost.result import Estimate
from meshwright.cost.wire.held import held
from meshwright.rehearse.compare import EXACT, Line
from meshwright.rehearse.result import RankRehearsal
from meshwright.train.config.job import Job


def sharers(job: Job) -> int:
    """Devices of a node that the job uses: they share its host."""
    return min(job.layout.devices, job.cluster.devices_per_node) if job.cluster is not None else 1


def host_lines(job: Job, found: RankRehearsal, estimate: Estimate | None) -> list[Line]:
    """States that are on the host, to the byte; and the most that was there beside the Estimate's share of a device.

    The Estimate has the states only, without counters, of the fullest pipeline rank: it is not judged.
    """
    if not found.host_bytes:
        return []
    formulas = held(job.model, job.layout, found.rank, job.config.optimizer.name)
    known = {name: size for name, size in formulas.items() if size is not None}
    kept = sum(found.host_parts.get(name, 0.0) for name in known)
    lines = [Line("states on the host", "bytes", kept, sum(known.values()), EXACT)]
    if estimate is not None:
        share = estimate.memory.host_bytes / sharers(job)
        lines.append(Line("host memory", "bytes", found.host_bytes, share, None))
    return lines
