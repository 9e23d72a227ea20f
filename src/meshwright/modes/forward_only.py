"""Forward passes through a pipeline with no backward, for evaluation.

Micro-batch m is in stage s in beat m + s, whatever schedule the training steps follow: PyTorch's schedules that split
backward have no run without one. What passes borders in a beat travels in one batch of sends and receives, which all
ranks order alike. Sent: [T, H] numbers a micro-batch and border. Idle: (stages-1)/(m+stages-1).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from meshwright.modes.parallelize import Parallel

Run = Callable[[int, int, torch.Tensor | None], torch.Tensor]
"""(stage, micro-batch, what the stage before gave; None on the first) → what the stage gives."""


@torch.no_grad()
def forward_only(parallel: Parallel, micro_batches: int, run: Run, like: torch.Tensor) -> list[torch.Tensor]:
    """What the last stage gives for each micro-batch, in order; nothing on the other ranks.

    `like` has the shape and dtype of what passes between stages. Every rank of the pipeline calls it.
    """
    last = len(parallel.places) - 1
    found: list[torch.Tensor] = []
    inputs: dict[int, torch.Tensor] = {}
    for beat in range(micro_batches + last):
        busy = range(max(beat - micro_batches + 1, 0), min(beat, last) + 1)
        given = {
            stage: run(stage, beat - stage, inputs.pop(stage, None)) for stage in parallel.indices if stage in busy
        }
        if last in given:
            found.append(given.pop(last))
        inputs = _passed_on(parallel, [stage for stage in busy if stage < last], given, like)
    return found


def _passed_on(
    parallel: Parallel, borders: list[int], given: dict[int, torch.Tensor], like: torch.Tensor
) -> dict[int, torch.Tensor]:
    """By stage of this rank, what the stage before has given; `borders` are crossed behind these stages."""
    group = parallel.mesh.group("pipeline")
    here, inputs, travels = group.rank(), dict[int, torch.Tensor](), list[dist.P2POp]()
    for stage in borders:
        source, target = parallel.places[stage], parallel.places[stage + 1]
        if source == target == here:
            inputs[stage + 1] = given[stage]
        elif source == here:
            peer = dist.get_global_rank(group, target)
            travels.append(dist.P2POp(dist.isend, given[stage].contiguous(), peer, group))
        elif target == here:
            inputs[stage + 1] = torch.empty_like(like, device=parallel.mesh.device, requires_grad=False)
            peer = dist.get_global_rank(group, source)
            travels.append(dist.P2POp(dist.irecv, inputs[stage + 1], peer, group))
    for work in dist.batch_isend_irecv(travels) if travels else ():
        work.wait()
    return inputs
