"""Regions: where hidden states enter and leave what tensor ranks split (`modes.tensor`), T tokens of H numbers.

| | forward | backward | source |
| --- | --- | --- | --- |
| enter, sequence parallel | all-gather | reduce-scatter | arXiv:2205.05198 section 4.2.2 |
| leave, sequence parallel | reduce-scatter | all-gather | the same |
| enter, not | nothing | all-reduce | arXiv:1909.08053 section 3, f |
| leave, not | all-reduce | nothing | the same, g |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.cost.wire.event import Event, times
from meshwright.cost.wire.options import WireOptions
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts and widths of one micro-batch on one rank."""

    all: int
    """T: what a split product sees: micro-batch × sequence / context."""
    own: int
    """What a norm sees: T / tensor with sequence parallelism."""
    hidden: int

    @classmethod
    def of(cls, model: Model, workload: Workload, layout: Layout) -> Tokens:
        """The tokens of a layout."""
        tokens = layout.micro_batch * workload.seq_len // layout.context
        return cls(tokens, tokens // layout.tensor if layout.sequence_parallel else tokens, model.hidden)


@dataclass(slots=True)
class Passes:
    """Collectives of one part of the model in one micro-batch."""

    forward: list[Event] = field(default_factory=list)
    backward: list[Event] = field(default_factory=list)
    replay: list[Event] = field(default_factory=list)
    """What recomputation runs again in backward."""

    def add(self, other: Passes) -> None:
        """Another part after this one; replays are set for the whole."""
        self.forward += other.forward
        self.backward += other.backward

    def times(self, count: int) -> list[Event]:
        """All of so many micro-batches."""
        return times([*self.forward, *self.backward, *self.replay], count)


def enter(layout: Layout, n: Tokens, element: int) -> Passes:
    """Into a split region; nothing for one tensor rank, as events of one rank send nothing."""
    size = n.all * n.hidden * element
    if layout.sequence_parallel:
        return Passes([_tensor("all-gather", layout, size)], [_tensor("reduce-scatter", layout, size)])
    return Passes([], [_tensor("all-reduce", layout, size)])


def leave(layout: Layout, n: Tokens, element: int) -> Passes:
    """Out of a split region."""
    size = n.all * n.hidden * element
    if layout.sequence_parallel:
        return Passes([_tensor("reduce-scatter", layout, size)], [_tensor("all-gather", layout, size)])
    return Passes([_tensor("all-reduce", layout, size)], [])


def embedding(layout: Layout, n: Tokens, o: WireOptions) -> Passes:
    """The vocabulary-parallel table: each rank looks up its rows, the sum is whole."""
    return leave(layout, n, o.table)


def head(layout: Layout, n: Tokens, o: WireOptions) -> Passes:
    """The vocabulary-parallel head and cross-entropy: maxima [T], then sums of exponentials and target logits [2, T]
    (arXiv:1909.08053 section 3; the loss keeps what its backward needs)."""
    found = enter(layout, n, o.activation)
    found.forward += [_tensor("all-reduce", layout, count * n.all * o.loss) for count in (1, 2)]
    return found


def _tensor(collective: str, layout: Layout, size: int) -> Event:
    return Event("tensor", collective, layout.tensor, size)
