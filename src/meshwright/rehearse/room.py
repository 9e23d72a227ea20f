"""Room: what a step holds from its start for each of its micro-batches, also for those that a rehearsal leaves out.

In a pipeline: tokens, which are joined and cut again, and the tensors into which PyTorch's stages receive hidden states
and gradients, of which there is one for each micro-batch from before the first. (Not: the loss of each, 4 bytes.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from meshwright.train import step
from meshwright.train.batch import Batch


@contextmanager
def room_for(left_out: int) -> Iterator[None]:
    """Inside, pipelines make room for so many micro-batches more than they run."""
    from torch.distributed.pipelining.stage import PipelineStage

    forward, backward = PipelineStage._prepare_forward_infra, PipelineStage._prepare_backward_infra
    join = step._joined

    def more_forward(stage: Any, micro_batches: int, *args: Any, **kwargs: Any) -> Any:
        return forward(stage, micro_batches + left_out, *args, **kwargs)

    def more_backward(stage: Any, micro_batches: int, *args: Any, **kwargs: Any) -> Any:
        return backward(stage, micro_batches + left_out, *args, **kwargs)

    def join_more(micro_batches: Sequence[Batch]) -> Batch:
        rows = sum(len(batch.tokens) for batch in micro_batches)
        whole = join([*micro_batches, *(micro_batches[0] for _ in range(left_out))])
        documents = None if whole.documents is None else whole.documents[:rows]
        return Batch(whole.tokens[:rows], whole.targets[:rows], whole.positions[:rows], documents)

    PipelineStage._prepare_forward_infra = more_forward  # type: ignore[method-assign, assignment]
    PipelineStage._prepare_backward_infra = more_backward  # type: ignore[method-assign, assignment]
    step._joined = join_more
    try:
        yield
    finally:
        PipelineStage._prepare_forward_infra = forward  # type: ignore[method-assign]
        PipelineStage._prepare_backward_infra = backward  # type: ignore[method-assign]
        step._joined = join
