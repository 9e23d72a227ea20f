"""Pipeline parallelism on PyTorch's schedules (GPipe: arXiv:1811.06965; 1F1B and interleaving: arXiv:2104.04473;
zero bubble and ZBV: arXiv:2401.10241; DualPipeV: arXiv:2412.19437 and github.com/deepseek-ai/DualPipe).

Split: layers, in stages. Sent a micro-batch and stage border: the hidden states forward, [T, H] numbers (T/t with
sequence parallelism), and their gradient backward; nothing where both stages lie on one rank, as at the turn of a V.
Once a step: the gradient of a tied table between the first and the last stage.
Keeps: 1/p of parameters, gradients and optimizer states; activations of as many micro-batches as the schedule holds.
Idle: (p-1)/(m+p-1) of a step for GPipe and 1F1B, less with more stages a rank, near none for zero-bubble schedules.
Use it across nodes, with many micro-batches; not with few: ranks idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

from meshwright.modes.mesh import Mesh
from meshwright.modes.ranges import named
from meshwright.spec.layout import MULTI_STAGE_SCHEDULES

Schedule = PipelineScheduleSingle | PipelineScheduleMulti
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_CLASSES = {
    "gpipe": torch_schedules.ScheduleGPipe,
    "1f1b": torch_schedules.Schedule1F1B,
    "interleaved1f1b": torch_schedules.ScheduleInterleaved1F1B,
    "loopedbfs": torch_schedules.ScheduleLoopedBFS,
    "interleavedzerobubble": torch_schedules.ScheduleInterleavedZeroBubble,
    "zbvzerobubble": torch_schedules.ScheduleZBVZeroBubble,
    "dualpipev": torch_schedules.ScheduleDualPipeV,
}


def make_schedule(
    stages: Sequence[nn.Module],
    indices: Sequence[int],
    mesh: Mesh,
    micro_batches: int,
    loss: Loss,
    *,
    shapes: Callable[[bool, bool], tuple[torch.Tensor, torch.Tensor]] | None = None,
    table: str | None = None,
) -> Schedule:
    """PyTorch's schedule over this rank's `stages`, whose places in the model are `indices`.

    `shapes(first, last)` gives meta tensors like a stage's input and output; without it PyTorch runs each stage once to
    find out. `table`: path of a schedule in PyTorch's CSV form, which replaces the layout's.
    """
    layout, total = mesh.layout, mesh.layout.stages
    wrapped = []
    for module, index in zip(stages, indices, strict=True):
        known = shapes(index == 0, index == total - 1) if shapes else (None, None)
        wrapped.append(
            _NamedStage(
                module,
                index,
                total,
                mesh.device,
                input_args=known[0],
                output_args=known[1],
                group=mesh.group("pipeline"),
                dw_builder=_whole_backward if layout.recompute == "full" else None,
            )
        )
    if table is not None:
        runner = torch_schedules._PipelineScheduleRuntime(wrapped, micro_batches, loss_fn=loss, scale_grads=False)  # type: ignore[no-untyped-call]
        runner._load_csv(table)
        return runner
    kind = _CLASSES[layout.schedule]
    several = layout.schedule in MULTI_STAGE_SCHEDULES
    return kind(wrapped if several else wrapped[0], micro_batches, loss_fn=loss, scale_grads=False)  # type: ignore


class _NamedStage(PipelineStage):
    """A stage whose actions have names in a trace, whichever schedule asks for them."""

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with named("forward", self.stage_index, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> Any:
        with named("backward" if full_backward else "input", self.stage_index, bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> Any:
        with named("weight", self.stage_index, bwd_chunk_id):
            return super().backward_weight_one_chunk(bwd_chunk_id, last_backward)


def _whole_backward() -> Callable[[], None]:
    """What is left for the weights' turn where a stage's backward is not split: nothing.

    A fully recomputed block would run forward once for its input's gradient and again for its weights'.
    """
    return lambda: None
