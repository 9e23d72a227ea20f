"""Case: the work on which a layout is compared with one process."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from meshwright.spec.layout import Layout
from meshwright.spec.rules.rule import divisors
from meshwright.train.batch import IGNORED, Batch
from meshwright.train.optim.config import OptimConfig

TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
"""Relative, by dtype."""
EPSILON = {"float64": 1e-4, "float32": 0.1}
"""AdamW's, by dtype; gradients are clipped to a norm of 1."""


@dataclass(frozen=True)
class Case:
    """Everything that reference and layouts share."""

    model: str = "tiny-llama"
    dtype: str = "float64"
    seq_len: int = 64
    global_batch: int = 16
    steps: int = 3
    seed: int = 0
    max_norm: float = 1.0
    optimizer: str = "adamw"
    lr: float = 1e-3
    packed: bool = False
    """Sequences hold several documents, which do not see each other and count their positions from 0."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """What everything is computed in."""
        return {"float64": torch.float64, "float32": torch.float32}[self.dtype]

    @property
    def optim(self) -> OptimConfig:
        """AdamW with a large epsilon: it divides a gradient by its own size, and one that is all rounding would move
        its parameter by a whole step. With epsilon above the rounding of the largest gradient it does not."""
        more = {"eps": EPSILON[self.dtype]} if self.optimizer == "adamw" else {}
        return OptimConfig(name=self.optimizer, lr=self.lr, weight_decay=0.1, **more)  # type: ignore[arg-type]


def global_batch(case: Case, step: int, vocabulary: int) -> Batch:
    """All sequences of one step, the same under every layout.

    Loss masks are uneven on purpose: sequence i counts another number of targets than its neighbours, and one counts
    none, so that a mean of means differs from the mean.
    """
    generator = torch.Generator().manual_seed(case.seed * 1_000_003 + step)
    tokens = torch.randint(0, vocabulary, (case.global_batch, case.seq_len + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    for i in range(case.global_batch):
        hidden = (i * 13 + step * 5) % case.seq_len
        targets[i, : hidden if i != 1 else case.seq_len] = IGNORED
    positions = torch.arange(case.seq_len).expand(case.global_batch, -1).contiguous()
    documents = None
    if case.packed:
        drawn = torch.rand(case.global_batch, case.seq_len, generator=generator, dtype=torch.float32)
        begins = drawn < 3 / case.seq_len
        begins[:, 0] = True
        documents = begins.cumsum(1) - 1
        positions = positions - torch.where(begins, positions, 0).cummax(1).values
    return Batch(tokens[:, :-1].contiguous(), targets, positions, documents)


def with_micro_batches(layout: Layout, case: Case, accumulation: int) -> Layout | None:
    """The layout with as many micro-batches as `accumulation` asks for, or None where the batch allows no such number.

    Outside of a pipeline that many micro-batches a step; in one, the fewest that its schedule takes, times that.
    """
    per_rank, rest = divmod(case.global_batch, layout.data)
    if rest:
        return None
    least = 1
    if layout.stages > 1:
        least = 2 * layout.pipeline if layout.schedule == "dualpipev" else layout.pipeline
    wanted = least * accumulation
    fitting = [count for count in divisors(per_rank) if count >= wanted]
    return replace(layout, micro_batch=per_rank // fitting[0]) if fitting else None


def rows_of(layout: Layout, case: Case, data_rank: int) -> list[slice]:
    """The sequences of each micro-batch of one data rank."""
    per_rank = case.global_batch // layout.data
    start, size = data_rank * per_rank, layout.micro_batch
    return [slice(start + i * size, start + (i + 1) * size) for i in range(per_rank // size)]


def cut(batch: Batch, rows: slice) -> Batch:
    """Some sequences of a batch."""
    documents = None if batch.documents is None else batch.documents[rows]
    return Batch(batch.tokens[rows], batch.targets[rows], batch.positions[rows], documents)
