"""One training step under any layout: the loss normalised once, gradients summed once.

The loss is the sum of all token losses over all ranks and micro-batches, divided by the global number of target
tokens. Every rank back-propagates its share of that quotient; gradients are summed, never averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from meshwright.modes.forward_only import forward_only
from meshwright.modes.gradients import complete_gradients, end_step, micro_batch
from meshwright.modes.parallelize import Parallel
from meshwright.modes.ranges import named
from meshwright.modes.vocabulary import cross_entropy_sum
from meshwright.train.batch import Batch

if TYPE_CHECKING:  # PyTorch's pipelines take a second to import
    from meshwright.modes.pipeline import Schedule


@dataclass
class Step:
    """Forward and backward of a step's micro-batches, on this rank's share of the model."""

    parallel: Parallel
    vocabulary: int
    """Rows of the whole vocabulary."""
    hidden: int = 0
    """Width of the hidden states between stages; 0: PyTorch finds out by running each stage once."""

    def __post_init__(self) -> None:
        self._schedules: dict[tuple[int, torch.Size], Schedule] = {}
        self._scale = 1.0

    def run(self, micro_batches: Sequence[Batch], *, target_tokens: int, loss_scale: float = 1.0) -> torch.Tensor:
        """Add the gradients of loss · `loss_scale` to the parts; returns this rank's share of the loss, unscaled.

        `micro_batches` are this data rank's, with the tokens of this context rank. `target_tokens` is the global
        number. The shares of the ranks whose `reports` is true add up to the loss. Gradients are complete afterwards.
        """
        self._scale = loss_scale / max(target_tokens, 1)
        self._balance(len(micro_batches), micro_batches[0].tokens.size(0), loss_scale)
        total = self._pipeline(micro_batches) if self.parallel.mesh.layout.stages > 1 else self._plain(micro_batches)
        with named("reduce"):
            complete_gradients(self.parallel)
        return total / loss_scale

    @property
    def reports(self) -> bool:
        """Whether this rank's share counts: the last stage's, once a tensor group."""
        mesh = self.parallel.mesh
        last = mesh.layout.stages == 1 or mesh.layout.stages - 1 in self.parallel.indices
        return last and mesh.index("tensor") == 0

    @torch.no_grad()
    def evaluate(self, micro_batches: Sequence[Batch]) -> torch.Tensor:
        """This rank's share of the sum of the token losses; no gradients. See `run`.

        Raises ValueError in a pipeline whose `hidden` is not given.
        """
        p = self.parallel
        if p.mesh.layout.stages > 1 and not self.hidden:
            raise ValueError("A pipeline evaluates where the width of its hidden states is given (Step.hidden).")
        last = p.mesh.layout.stages - 1

        def run(stage: int, micro_batch: int, hidden: torch.Tensor | None) -> torch.Tensor:
            batch = micro_batches[micro_batch]
            out = self._out(p.stages[p.indices.index(stage)], batch, hidden)
            return self._loss_sum(out, batch.targets) if stage == last else out

        losses = forward_only(p, len(micro_batches), run, self._shapes(micro_batches[0])(False, False)[0])
        return torch.stack(losses).sum() if losses else torch.zeros((), device=p.mesh.device)

    def finish(self) -> None:
        """After the optimizer: parameters gathered for this step are stale."""
        end_step(self.parallel)

    def _plain(self, micro_batches: Sequence[Batch]) -> torch.Tensor:
        runner = self.parallel.runners[0]
        total = torch.zeros((), device=self.parallel.mesh.device)
        for i, batch in enumerate(micro_batches):
            last = i == len(micro_batches) - 1
            with micro_batch(self.parallel, last=last):
                with named("forward", micro_batch=i):
                    loss = self._loss_sum(self._out(runner, batch), batch.targets) * self._scale
                with named("backward", micro_batch=i):
                    loss.backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()
        return total

    def _pipeline(self, micro_batches: Sequence[Batch]) -> torch.Tensor:
        p, schedule = self.parallel, self._schedule_of(micro_batches)
        joined = _joined(micro_batches)
        inputs = (joined.tokens,) if 0 in p.indices else ()
        more: dict[str, Any] = {} if joined.documents is None else {"documents": joined.documents}
        losses: list[torch.Tensor] = []
        with self._autocast():
            schedule.step(
                *inputs, positions=joined.positions, target=joined.targets, losses=losses, return_outputs=False, **more
            )
        if losses:
            return torch.stack([loss.detach() for loss in losses]).sum()
        return torch.zeros((), device=p.mesh.device)

    def _schedule_of(self, micro_batches: Sequence[Batch]) -> Schedule:
        """PyTorch's schedule for this many micro-batches of this shape, made once."""
        p, key = self.parallel, (len(micro_batches), micro_batches[0].tokens.shape)
        if key not in self._schedules:
            from meshwright.modes.pipeline import make_schedule

            self._schedules[key] = make_schedule(
                p.stages, p.indices, p.mesh, len(micro_batches), self._stage_loss,
                shapes=self._shapes(micro_batches[0]) if self.hidden else None, table=p.options.schedule_table,
            )  # fmt: skip
        return self._schedules[key]

    def _stage_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self._loss_sum(logits, targets) * self._scale

    def _out(self, runner: nn.Module, batch: Batch, hidden: torch.Tensor | None = None) -> torch.Tensor:
        with self._autocast():
            x = batch.tokens if hidden is None else hidden
            return runner(x, batch.positions, batch.documents)  # type: ignore[no-any-return]

    def _loss_sum(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        flat = logits.flatten(0, -2)
        return cross_entropy_sum(flat, targets.flatten(), self.parallel.mesh.group("tensor"), self.vocabulary)

    def _autocast(self) -> AbstractContextManager[None]:
        """FSDP casts parameters itself; elsewhere they stay wide and products are computed in the narrow type."""
        p = self.parallel
        if p.options.dtype is None or p.sharded:
            return nullcontext()
        return torch.autocast(p.mesh.device.type, dtype=p.options.dtype)

    def _shapes(self, batch: Batch) -> Callable[[bool, bool], tuple[torch.Tensor, torch.Tensor]]:
        """Meta tensors like the input and the output of a stage."""
        p = self.parallel
        layout, parameter = p.mesh.layout, next(iter(p.parts)).parameter
        dtype = p.options.dtype or parameter.dtype
        rows = batch.tokens.numel()
        local = rows // layout.tensor if layout.sequence_parallel else rows
        # Gradients travel back where these ask for them.
        hidden = torch.empty(local, self.hidden, dtype=dtype, device="meta", requires_grad=True)
        columns = -(-self.vocabulary // layout.tensor)
        logits = torch.empty(rows, columns, dtype=dtype, device="meta", requires_grad=True)
        tokens = torch.empty_like(batch.tokens, device="meta")
        return lambda first, last: (tokens if first else hidden, logits if last else hidden)

    def _balance(self, micro_batches: int, sequences: int, loss_scale: float) -> None:
        """Load-balancing losses are a mean over the step's sequences, whichever ranks they lie on."""
        scale = loss_scale / (micro_batches * sequences * self.parallel.mesh.layout.data)
        for stage in self.parallel.stages:
            for module in stage.modules():
                if hasattr(module, "balance_scale"):
                    module.balance_scale = scale  # type: ignore[assignment]


def _joined(micro_batches: Sequence[Batch]) -> Batch:
    """Micro-batches of equal shape as one batch, which PyTorch's schedules cut again."""
    documents = [batch.documents for batch in micro_batches]
    return Batch(
        torch.cat([batch.tokens for batch in micro_batches]),
        torch.cat([batch.targets for batch in micro_batches]),
        torch.cat([batch.positions for batch in micro_batches]),
        None if documents[0] is None else torch.cat([d for d in documents if d is not None]),
    )
