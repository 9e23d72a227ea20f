"""StepReport: what one optimizer step did, in numbers. The loop fills it; sinks write its fields by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step of the whole job."""

    step: int
    """From 1."""
    loss: float
    """Sum of the token losses divided by the number of target tokens, over all ranks."""
    grad_norm: float
    """Global norm before clipping."""
    lr: float
    tokens: int
    """Tokens of this step, over all ranks."""
    seconds: float
    """From the end of the step before to the end of this one."""
    tokens_per_second: float
    """Of all ranks together: the median of the last steps."""
    memory_bytes: float
    """Peak so far of the fullest rank."""
    memory_kind: str
    """What that is: `usage.CUDA` or `usage.HOST`."""
    mfu: float | None = None
    """Share of the devices' peak; None: the peak is not known."""
    target_tokens: int | None = None
    """Of `tokens`, those that the loss counts."""
    aux_loss: float | None = None
    """Load-balancing loss of a mixture of experts, unweighted."""
    eval_loss: float | None = None
    """On held-out data, on steps that evaluate."""
    loss_scale: float | None = None
    """fp16 only."""
    skipped: bool = False
    """The gradients had infinities or NaN, and no parameter moved (fp16)."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further numbers by name."""

    def numbers(self) -> dict[str, Any]:
        """Every field that has a value, and the further ones, by name: the keys of metrics.jsonl and of the curves."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        clash = set(own) & set(self.extra)
        if clash:
            raise ValueError(f"A further number may not be called {sorted(clash)[0]}.")
        return {name: value for name, value in own.items() if value is not None} | dict(self.extra)
