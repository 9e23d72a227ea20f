"""A step's gradients, whatever modes are at work: when they are summed, over whom, and when they are complete.

for i, batch in enumerate(batches):
    with micro_batch(parallel, last=i == len(batches) - 1):
        (loss_sum(parallel.runners[0](batch)) / target_tokens).backward()
complete_gradients(parallel)
optimizer.step()
end_step(parallel)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from meshwright.modes.parallelize import Parallel
from meshwright.modes.parts import Part
from meshwright.modes.replicated import sum_in_buckets
from meshwright.modes.sharded import after_backward, before_micro_batch, give_back
from meshwright.spec.errors import RequestError


@contextmanager
def micro_batch(parallel: Parallel, *, last: bool) -> Iterator[None]:
    """Forward and backward of one micro-batch outside of a pipeline; only the `last` one of a step has to talk.

    Raises RequestError where DDP was told of a static graph and gradients are to be accumulated.
    """
    runner, layout = parallel.runners[0], parallel.mesh.layout
    if parallel.sharded:
        fresh = last and all(part.parameter.grad is None for part in parallel.parts)
        before_micro_batch(parallel.stages[0], layout.zero_stage, last, fresh)
    if isinstance(runner, DistributedDataParallel) and not last:
        if runner.static_graph:
            # DDP learns the graph from the first backward, even one that does not talk, and then waits for as many.
            raise RequestError("DDP's static graph takes one micro-batch a step.", ["parallel.static_graph false"])
        with runner.no_sync():
            yield
        return
    yield


def complete_gradients(parallel: Parallel) -> None:
    """After the last backward: sum what backward left partial. Every rank calls it once a step.

    Outside of FSDP2 and DDP: gradients of a pipeline's stages over the data ranks, of spread experts over those that
    hold the same ones. Always: of parameters that saw a part of the tokens or heads, and of a tied table's copies.
    """
    mesh, parts = parallel.mesh, parallel.parts
    bucket = parallel.options.bucket_mb * 2**20
    for stage in parallel.stages if parallel.sharded else ():
        after_backward(stage)
    for runner in parallel.runners:
        if isinstance(runner, DistributedDataParallel):
            # After the first step DDP moves its gradients to new buckets. It would in the next forward, when they lie
            # beside the optimizer's states.
            runner.reducer._rebuild_buckets()
    if not parallel.sharded:
        if mesh.layout.stages > 1:
            _sum([part for part in parts if not _is_expert(parallel, part)], mesh.group("data"), bucket)
        _sum([part for part in parts if _is_expert(parallel, part)], mesh.group("expert_data"), bucket)
    for axis in dict.fromkeys(axis for cut in parallel.cuts.values() for axis in cut.sum_over):
        split = [part for part in parts if (cut := parallel.cuts.get(part.name)) and axis in cut.sum_over]
        _sum(split, mesh.group(axis), bucket)
    for table in parallel.tied:
        table.sum_gradients()


def stay_in_buckets(parallel: Parallel) -> bool:
    """Whether gradients are views of DDP's buckets, to be filled with zeros after a step.

    Dropped, those of the next step's first micro-batches would be new memory beside the buckets, 4 bytes a parameter.
    Where parameters may be unused they are dropped, so that an optimizer leaves those alone.
    """
    buckets = any(isinstance(runner, DistributedDataParallel) for runner in parallel.runners)
    return buckets and not parallel.options.find_unused


def end_step(parallel: Parallel) -> None:
    """After the optimizer: parameters that were gathered for this step are stale."""
    if parallel.sharded:
        for stage in parallel.stages:
            give_back(stage)


def _is_expert(parallel: Parallel, part: Part) -> bool:
    cut = parallel.cuts.get(part.name)
    return cut is not None and cut.expert


def _sum(parts: Sequence[Part], group: dist.ProcessGroup, bucket_bytes: float) -> None:
    if group.size() > 1:
        sum_in_buckets([gradient for part in parts if (gradient := part.gradient) is not None], group, bucket_bytes)
