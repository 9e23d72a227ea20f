"""WireOptions: what the bytes depend on beside model, workload and layout."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class WireOptions:
    """Bytes of a number of each kind, and switches."""

    kept: int = 4
    """Of parameters and gradients as they are kept: what DDP and sums after backward send."""
    compute: int = 4
    """Of parameters as FSDP gathers them."""
    reduce: int = 4
    """Of gradients as FSDP reduces them."""
    activation: int = 4
    """Of hidden states: what matrix products give and what flows between blocks."""
    table: int = 4
    """Of what is looked up in the embedding table, before it becomes hidden states."""
    loss: int = 4
    """What the loss and the gradient norm are computed in."""
    bucket: float = 25 * 2**20
    """Bytes of a bucket of gradients."""
    documents: bool = False
    """Documents in a sequence do not see each other."""
    balance: bool = True
    """Mixtures have a load-balancing loss."""

    @classmethod
    def uniform(cls, element: int, **more: float | bool) -> WireOptions:
        """Everything in one dtype of so many bytes (4 or 8), as `check` runs."""
        return cls(element, element, element, element, element, max(element, 4), **more)  # type: ignore[arg-type]

    @classmethod
    def of(cls, workload: Workload, zero_stage: int) -> WireOptions:
        """As `train` runs this precision: FSDP casts what it gathers; elsewhere parameters stay fp32 under autocast."""
        states = state_bytes(workload)
        kept, compute = 4, int(states.compute)
        return cls(kept, compute, int(states.reduce), compute, table=compute if zero_stage else kept)
