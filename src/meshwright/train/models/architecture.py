"""Architecture: what computing a model needs beyond the numbers that its cost depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.spec.model import Model
from meshwright.train.models.positions import Rope


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model that the Decoder computes exactly."""

    model: Model
    norm_eps: float
    activation: str
    """A key of `mlp.ACTIVATIONS`."""
    windows: tuple[int, ...]
    """By layer: tokens that attention sees, the token itself among them; 0: all before it."""
    rope: Rope | None = None
    """None: no rotary positions."""
    renormalise: bool = False
    """The weights of a token's k experts are scaled to sum to 1."""
    balance_coefficient: float = 0.0
    """Of the load-balancing loss; 0: there is none."""
    capacity_factor: float | None = None
    """Visits that an expert takes at most, as a multiple of an even share; None: no visit is dropped."""
    init_std: float = 0.02
    notes: tuple[str, ...] = ()
    """What of the configuration training leaves out, for the reader."""
    config: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The Hugging Face configuration it was read from; empty: none."""

    @property
    def per_head(self) -> bool:
        """Whether queries and keys are normalised head by head (Qwen3)."""
        return self.model.qk_norm == "head"
