"""Assumptions: what a rehearsal cannot see, or takes for granted."""

from __future__ import annotations

from meshwright.rehearse.shortened import run_of
from meshwright.train.config.job import Job


def assumptions(job: Job) -> tuple[str, ...]:
    """One sentence each, for this job."""
    lines = [
        "bytes are those that tensors ask for: no rounding by the allocator, no fragmentation, no CUDA context, "
        "no buffers of NCCL, no workspaces inside of kernels"
    ]
    gpu = job.for_gpus
    if gpu:
        lines.append("tensors stand for such on a GPU: fused norms, flash attention, grouped experts; no stream waits")
    if job.model.experts is not None:
        lines.append("every expert gets the same number of tokens, times --imbalance for those of this rank")
    run = run_of(job.layout, job.micro_batches)
    if run < job.micro_batches:
        lines.append(f"{run} of {job.micro_batches:,} micro-batches are run; the others do what one between them does")
    if job.layout.offload and gpu:
        lines.append("what is offloaded is counted apart, and its pinned memory is not rounded up, as PyTorch may do")
    return tuple(lines)
