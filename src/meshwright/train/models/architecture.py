"""Architecture: what computing a model needs beyond the numbers that its cost depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.spec.model import Model
from meshwright.train.models.positions import Rope


@dataclass(frozen=True, slots=True)
class Routing:
    """How a mixture chooses a token's experts and weighs them."""

    scores: str = "softmax"
    """Of the router's logits: softmax, or sigmoid of each by itself (DeepSeek-V3)."""
    corrected: bool = False
    """A number an expert is added to its score for the choice alone (arXiv:2408.15664): a buffer, no parameter."""
    groups: int = 1
    """Neighbouring experts form so many groups, of which a token visits `groups_kept` (arXiv:2405.04434, 2.2.2)."""
    groups_kept: int = 1
    group_best: int = 1
    """A group is as good as the sum of its so many best scores."""
    scale: float = 1.0
    """What the weights are multiplied by in the end."""


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
    routing: Routing = Routing()
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
    def rope_dim(self) -> int:
        """Numbers of a head that turn with the position."""
        return self.model.head_dim if self.model.latent is None else self.model.latent.qk_rope_head_dim

    @property
    def per_head(self) -> bool:
        """Whether queries and keys are normalised head by head (Qwen3)."""
        return self.model.qk_norm == "head"
