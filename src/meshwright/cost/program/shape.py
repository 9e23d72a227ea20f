"""Shape: the sizes of one micro-batch on one rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import Workload

INDEX = 8
"""Bytes of an index (int64)."""
WIDE = 4
"""Bytes of what is kept in fp32 whatever the precision: statistics, probabilities, tables, losses."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the bytes of a module's tensors depend on."""

    model: Model
    layout: Layout
    seq_len: int
    element: int
    """Bytes of a hidden number."""
    gpu: bool
    """Kernels of a GPU; else those of a CPU, which keep more in norms."""
    grouped: bool = False
    """One product for all experts, which takes bfloat16 on a GPU (`train/models/grouped.py`)."""

    @classmethod
    def of(cls, model: Model, workload: Workload, layout: Layout, *, gpu: bool) -> Shape:
        """Of a job."""
        element = int(state_bytes(workload, model).compute)
        return cls(model, layout, workload.seq_len, element, gpu, gpu and workload.precision == "bf16")

    @property
    def tokens(self) -> int:
        """T: tokens that a tensor rank's products see."""
        return self.layout.micro_batch * self.seq_len // self.layout.context

    @property
    def rows(self) -> int:
        """n: tokens that norms and residuals see."""
        return self.tokens // self.layout.tensor if self.sequence else self.tokens

    @property
    def sequence(self) -> bool:
        """Whether tensor ranks hold pieces of the sequence between their products."""
        return self.layout.tensor > 1 and self.layout.sequence_parallel

    @property
    def casts(self) -> bool:
        """Autocast makes a narrow copy of each weight, kept for backward. FSDP2 gathers narrow ones instead."""
        return self.element < WIDE and not self.layout.zero_stage

    @property
    def copied_by_all(self) -> bool:
        """Whether each micro-batch makes those copies; in a pipeline the first one makes them for all."""
        return self.casts and self.layout.stages == 1

    @property
    def heads(self) -> int:
        """Query heads of a tensor rank."""
        return self.model.heads // self.layout.tensor

    @property
    def kv_heads(self) -> int:
        """Key and value heads of a tensor rank."""
        return max(self.model.kv_heads // self.layout.tensor, 1)

    @property
    def vocabulary(self) -> int:
        """Rows of the vocabulary that a tensor rank holds, with padding."""
        return math.ceil(self.model.vocab / self.layout.tensor)

    @property
    def hidden(self) -> int:
        """Bytes of this rank's hidden states between layers."""
        return self.element * self.rows * self.model.hidden

    @property
    def entered(self) -> int:
        """Bytes of hidden states as a split product takes them: of all tensor ranks' tokens."""
        return self.element * self.tokens * self.model.hidden

    def copies(self, *numels: int) -> int:
        """Bytes of the narrow copies of weights of so many numbers."""
        return self.element * sum(numels) if self.copied_by_all else 0
