"""OptimConfig: which optimizer, with which numbers. A number that its optimizer does not read is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from meshwright.spec.errors import RequestError

if TYPE_CHECKING:
    from meshwright.modes.parts import Part


class OptimizerError(RequestError):
    """An optimizer, a schedule or a saved state that does not exist or does not fit."""


NEWTON_SCHULZ_DTYPES = ("bfloat16", "float32", "float64")
ADJUSTMENTS = ("match_rms_adamw", "original")
"""How Muon scales its step by a matrix' shape; the names are torch.optim.Muon's."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "adamw": {"betas": (0.9, 0.95), "eps": 1e-8},
    "sgd": {"momentum": 0.9, "nesterov": False},
    "adafactor": {"eps": None, "rms_floor": 1e-3, "beta2_decay": -0.8, "clip_threshold": 1.0},
    "lamb": {"betas": (0.9, 0.999), "eps": 1e-6, "trust_range": (0.0, float("inf"))},
    "muon": {
        "momentum": 0.95,
        "nesterov": True,
        "newton_schulz_steps": 5,
        "newton_schulz_dtype": None,
        "adjustment": "match_rms_adamw",
        "tables": ("embed.*", "head.*"),
        "table_lr": None,
        "betas": (0.9, 0.95),
        "eps": 1e-8,
    },
}
"""By optimizer: the fields it reads beside lr and weight decay, with their values where none is given."""

_SHARED = ("name", "lr", "weight_decay", "decay_all")


@dataclass(frozen=True)
class OptimConfig:
    """An optimizer's numbers; None means the value in DEFAULTS. Raises OptimizerError for what cannot be."""

    name: str = "adamw"
    """adamw, sgd, adafactor, lamb or muon."""
    lr: float = 3e-4
    """The peak rate; `PartOptimizer.set_lr` moves it. Adafactor: the largest relative step (torch.optim.Adafactor)."""
    weight_decay: float = 0.1
    """Decoupled from the gradient, but for SGD, whose decay is an L2 penalty as in torch.optim.SGD."""
    decay_all: bool = False
    """Decay norms, biases and vectors too (and let LAMB rescale their steps)."""
    betas: tuple[float, float] | None = None
    eps: float | None = None
    """Added to the denominator. Adafactor: the least root of a variance; None is the dtype's own epsilon."""
    momentum: float | None = None
    nesterov: bool | None = None
    rms_floor: float | None = None
    """Adafactor: a parameter's size counts as at least this (epsilon 2 of the paper)."""
    beta2_decay: float | None = None
    """Adafactor: the second moment's decay at step t is 1 - t to this power."""
    clip_threshold: float | None = None
    """Adafactor: the largest root mean square of an update before the step size."""
    trust_range: tuple[float, float] | None = None
    """LAMB: the weight norm is clamped to it (φ of the paper)."""
    newton_schulz_steps: int | None = None
    newton_schulz_dtype: str | None = None
    """Muon: one of NEWTON_SCHULZ_DTYPES; None: bfloat16, but float32 on a CPU, and float64 for float64 parameters."""
    adjustment: str | None = None
    """Muon: one of ADJUSTMENTS. With match_rms_adamw, rates tuned for AdamW hold (arXiv:2502.16982 section 2.2)."""
    tables: tuple[str, ...] | None = None
    """Muon: patterns of the parameters that AdamW trains although they are matrices: embeddings and head."""
    table_lr: float | None = None
    """Muon: the peak rate of all that AdamW trains; None: `lr`."""

    def __post_init__(self) -> None:
        if self.name not in DEFAULTS:
            raise OptimizerError(f"There is no optimizer {self.name!r}.", legal=list(DEFAULTS))
        own = DEFAULTS[self.name]
        for field in fields(self):
            if field.name not in _SHARED and field.name not in own and getattr(self, field.name) is not None:
                raise OptimizerError(f"{self.name} has no {field.name!r}.", legal=[*_SHARED[1:], *own])
        _check_numbers(self)

    def resolved(self) -> OptimConfig:
        """The same with every number that its optimizer reads filled in."""
        own = DEFAULTS[self.name]
        return replace(self, **{key: value for key, value in own.items() if getattr(self, key) is None})

    def decays(self, part: Part) -> bool:
        """Whether weight decay is for this parameter: by default not for norms, biases and vectors."""
        return self.decay_all or is_matrix(part)

    def orthogonalised(self, part: Part) -> bool:
        """Whether Muon itself trains this parameter: matrices and stacks of them, but no table."""
        tables = self.tables or ()
        return is_matrix(part) and not any(fnmatchcase(part.name, pattern) for pattern in tables)


def is_matrix(part: Part) -> bool:
    """Whether a parameter is a weight that multiplies: two dimensions or more, neither a bias nor of a norm."""
    path = part.name.split(".")
    module = path[-2] if len(path) > 1 else ""
    return len(part.shape) > 1 and not path[-1].endswith("bias") and "norm" not in module.lower()


def _check_numbers(config: OptimConfig) -> None:
    rates = {"lr": config.lr, "weight_decay": config.weight_decay, "eps": config.eps, "table_lr": config.table_lr}
    for name, value in (*rates.items(), ("rms_floor", config.rms_floor)):
        if value is not None and not 0 <= value < float("inf"):
            raise OptimizerError(f"{name} is {value}; it must be 0 or more.")
    shares = {"momentum": config.momentum, **{f"betas[{i}]": beta for i, beta in enumerate(config.betas or ())}}
    for name, value in shares.items():
        if value is not None and not 0 <= value < 1:
            raise OptimizerError(f"{name} is {value}; it must be at least 0 and less than 1.")
    if config.betas is not None and len(config.betas) != 2:
        raise OptimizerError(f"betas are two numbers, not {len(config.betas)}.")
    if config.beta2_decay is not None and config.beta2_decay > 0:
        raise OptimizerError(f"beta2_decay is {config.beta2_decay}; it must be 0 or less.")
    if config.clip_threshold is not None and config.clip_threshold < 1:
        raise OptimizerError(f"clip_threshold is {config.clip_threshold}; it must be 1 or more.")
    if config.adjustment is not None and config.adjustment not in ADJUSTMENTS:
        raise OptimizerError(f"There is no adjustment {config.adjustment!r}.", legal=ADJUSTMENTS)
    if config.newton_schulz_dtype is not None and config.newton_schulz_dtype not in NEWTON_SCHULZ_DTYPES:
        raise OptimizerError(f"Muon has no steps in {config.newton_schulz_dtype!r}.", legal=NEWTON_SCHULZ_DTYPES)
    if config.newton_schulz_steps is not None and not 0 < config.newton_schulz_steps < 100:
        raise OptimizerError(f"newton_schulz_steps is {config.newton_schulz_steps}; it must be from 1 to 99.")
    if config.nesterov and config.momentum == 0:
        raise OptimizerError("nesterov needs a momentum above 0.")
    if config.trust_range is not None and not 0 <= config.trust_range[0] <= config.trust_range[1]:
        raise OptimizerError(f"trust_range is {config.trust_range}; it must be (low, high) with 0 <= low <= high.")
