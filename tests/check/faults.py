"""Known bugs of released runtimes, each put into this runtime for as long as its context lasts.

Names are patched where they are looked up. `patch` fails for a name that is no longer there, so that a fault cannot
quietly become none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

import meshwright.check.program as program
import meshwright.modes.parallelize as parallelize
import meshwright.modes.pipeline as pipeline
import meshwright.modes.replicated as replicated
import meshwright.modes.sharded as sharded
import meshwright.modes.stages as stages
import meshwright.modes.tensor as tensor
import meshwright.train.optim.norm as norm
import meshwright.train.step as train_step
import meshwright.train.update as update
from meshwright.modes.mesh import Mesh
from meshwright.modes.parts import Part
from meshwright.modes.tied import TiedTable
from meshwright.spec.layout import Layout
from meshwright.train.batch import IGNORED, Batch
from meshwright.train.step import Step

Patches = Iterator[None]


@contextmanager
def _all(*patches: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


def _run_with(change: Callable[[Step, Sequence[Batch], int], int]) -> Any:
    """`Step.run` with another divisor of the loss."""
    right = Step.run

    def run(self: Step, micro_batches: Sequence[Batch], *, target_tokens: int, loss_scale: float = 1.0) -> torch.Tensor:
        return right(
            self, micro_batches, target_tokens=change(self, micro_batches, target_tokens), loss_scale=loss_scale
        )

    return patch.object(Step, "run", run)


@contextmanager
def mean_of_rank_means() -> Patches:
    """Each data rank divides by its own target tokens (pytorch/torchtitan#2206)."""

    def own(step: Step, micro_batches: Sequence[Batch], target_tokens: int) -> int:
        return sum(batch.target_tokens for batch in micro_batches) * step.parallel.mesh.layout.data

    with _run_with(own):
        yield


@contextmanager
def mean_of_micro_batch_means() -> Patches:
    """Each micro-batch divides by its own target tokens (as `reduction="mean"` does under accumulation)."""
    right = Step._loss_sum

    def mean(self: Step, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return right(self, logits, targets) / max(int((targets != IGNORED).sum()), 1)

    def means(step: Step, micro_batches: Sequence[Batch], target_tokens: int) -> int:
        return len(micro_batches) * step.parallel.mesh.layout.data

    with _all(patch.object(Step, "_loss_sum", mean), _run_with(means)):
        yield


@contextmanager
def masked_tokens_counted() -> Patches:
    """The divisor counts every token, masked ones too."""

    def tokens(step: Step, micro_batches: Sequence[Batch], target_tokens: int) -> int:
        layout = step.parallel.mesh.layout
        return sum(batch.targets.numel() for batch in micro_batches) * layout.data * layout.context

    with _run_with(tokens):
        yield


def _hook_times(factor: Callable[[dist.ProcessGroup], float]) -> Any:
    right = replicated._summed

    def hook(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return right(group, bucket).then(lambda done: done.value() * factor(group))

    # The class: DDP reads the hook's annotations.
    hook.__annotations__ = right.__annotations__
    return patch.object(replicated, "_summed", hook)


@contextmanager
def ddp_averages() -> Patches:
    """DDP's own mean over ranks, on a loss that is already divided globally (torchtitan#2318)."""
    with _hook_times(lambda group: 1 / group.size()):
        yield


@contextmanager
def ddp_times_world() -> Patches:
    """Gradients scaled up against an average that nobody takes."""
    with _hook_times(lambda group: group.size()):
        yield


@contextmanager
def fsdp_averages() -> Patches:
    """FSDP2's own mean over ranks, on a loss that is already divided globally (torchtitan#2318)."""
    with patch.object(sharded, "_tune", lambda *_: None):
        yield


@contextmanager
def scale_grads() -> Patches:
    """PyTorch's schedules divide by the micro-batches unless told not to (torchtitan#2972)."""

    def scaled(kind: Any) -> Any:
        return lambda *args, **more: kind(*args, **{**more, "scale_grads": True})

    with patch.dict(pipeline._CLASSES, {name: scaled(kind) for name, kind in pipeline._CLASSES.items()}):
        yield


def _pipeline_loss_times(factor: Callable[[Sequence[Batch], float], float]) -> Any:
    """The right loss is reported, but another multiple of it goes backward."""
    right = Step._pipeline

    def wrong(self: Step, micro_batches: Sequence[Batch]) -> torch.Tensor:
        times = factor(micro_batches, self._scale)
        self._scale *= times
        return right(self, micro_batches) / times

    return patch.object(Step, "_pipeline", wrong)


@contextmanager
def pipeline_times_micro_batches() -> Patches:
    """The mean over micro-batches is missing in a pipeline."""
    with _pipeline_loss_times(lambda micro_batches, _: len(micro_batches)):
        yield


@contextmanager
def pipeline_times_tokens() -> Patches:
    """Sums of token losses go backward, and only what is printed is divided (picotron's pipeline)."""
    with _pipeline_loss_times(lambda _, scale: 1 / scale):
        yield


@contextmanager
def context_not_summed() -> Patches:
    """Gradients are summed over the data ranks and not over the context ranks (picotron)."""
    right = replicated.replicate

    def without_context(module: nn.Module, mesh: Mesh, *rest: Any) -> nn.Module:
        return right(module, dataclasses.replace(mesh, axes={**mesh.axes, "data": mesh.axes["replicate"]}), *rest)

    with patch.object(parallelize, "replicate", without_context):
        yield


@contextmanager
def norm_of_own_stage() -> Patches:
    """Every pipeline stage clips by the norm of its own gradients (torchtitan#649)."""
    right = update.global_norm

    def own(parts: Sequence[Part]) -> torch.Tensor:
        group = parts[0].group
        with patch.object(norm, "all_sum", lambda values, _, sums=norm.all_sum: sums(values, group)):
            return right(parts)

    with patch.object(update, "global_norm", own):
        yield


@contextmanager
def norm_counts_copies() -> Patches:
    """What several ranks hold alike counts several times in the norm."""
    right = update.global_norm

    def every_copy(parts: Sequence[Part]) -> torch.Tensor:
        return right([dataclasses.replace(part, copies=1) for part in parts])

    with patch.object(update, "global_norm", every_copy):
        yield


@contextmanager
def experts_doubled() -> Patches:
    """Experts' gradients are summed once more over the expert ranks (pytorch#160285, DeepSpeed#5259)."""
    right = train_step.complete_gradients

    def complete(parallel: parallelize.Parallel) -> None:
        right(parallel)
        for part in parallel.parts:
            cut = parallel.cuts.get(part.name)
            if cut is not None and cut.expert and part.gradient is not None:
                part.gradient.mul_(parallel.mesh.layout.expert)

    with patch.object(train_step, "complete_gradients", complete):
        yield


@contextmanager
def layers_dropped() -> Patches:
    """Layers that do not divide by the stages are on no stage (Megatron-LM#468)."""

    def equal(layers: int, layout: Layout) -> list[int]:
        return [layers // layout.stages] * layout.stages

    with patch.object(stages, "layers_of_stages", equal):
        yield


@contextmanager
def norms_not_summed_over_tensor() -> Patches:
    """Sequence parallelism: each rank's norm sees its own tokens, and nobody sums their gradients."""
    with patch.object(tensor, "note_partial", lambda *_: None):
        yield


@contextmanager
def tied_not_summed() -> Patches:
    """The first and the last stage keep their own gradients of the table that they share."""
    with patch.object(TiedTable, "sum_gradients", lambda self: None):
        yield


@contextmanager
def last_micro_batch_alone() -> Patches:
    """Gradients are cleared before the last micro-batch: what was accumulated is lost."""
    right = train_step.micro_batch

    @contextmanager
    def forgetting(parallel: parallelize.Parallel, *, last: bool) -> Iterator[None]:
        if last:
            for part in parallel.parts:
                part.parameter.grad = None
        with right(parallel, last=last):
            yield

    with patch.object(train_step, "micro_batch", forgetting):
        yield


@contextmanager
def optimizer_of_old_parameters() -> Patches:
    """The optimizer was made before the parameters were sharded, and updates those (pytorch#149205)."""
    right = program.make_optimizer

    def stale(parts: Sequence[Part], *rest: Any, **more: Any) -> Any:
        old = [dataclasses.replace(part, parameter=nn.Parameter(part.parameter.detach().clone())) for part in parts]
        return right(old, *rest, **more)

    with patch.object(program, "make_optimizer", stale):
        yield


@contextmanager
def stale_gathered_parameters() -> Patches:
    """Parameters gathered for one step are used in the next, beside shards that the optimizer has changed."""
    with patch.object(Step, "finish", lambda self: None):
        yield


@contextmanager
def other_seed_on_one_rank() -> Patches:
    """One data rank starts from other weights."""
    right = program.assemble

    def assemble(*args: Any, seed: int, **more: Any) -> Step:
        return right(*args, seed=seed + (dist.get_rank() == 1), **more)

    with patch.object(program, "assemble", assemble):
        yield


@contextmanager
def loss_overflows() -> Patches:
    """Infinity minus infinity."""
    right = Step._loss_sum
    with patch.object(Step, "_loss_sum", lambda *args: right(*args) * torch.inf * 0):
        yield


@contextmanager
def crash_on_one_rank() -> Patches:
    """One rank fails while its peers wait for it."""
    right = Step.run

    def run(self: Step, *args: Any, **more: Any) -> torch.Tensor:
        if dist.get_rank() == 1:
            raise KeyError("a bug")
        return right(self, *args, **more)

    with patch.object(Step, "run", run):
        yield
