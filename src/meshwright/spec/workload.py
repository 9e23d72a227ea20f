"""Workload: what is trained, on how much at once, in which precision, with which optimizer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from meshwright.spec.errors import WorkloadError

PRECISIONS = ("fp32", "fp16", "bf16", "fp8")
IMPLEMENTATIONS = ("fused", "compiled", "eager", "partly-fused", "unfused", "host")
"""Classes of software: Megatron-Core and Transformer Engine; torch.compile and XLA; PyTorch with fused attention and
norms; Megatron-LM and Megatron-DeepSpeed of 2020 to 2022; plain PyTorch modules of that time (transformers)."""
OPTIMIZERS = ("adamw", "sgd", "adafactor", "lamb", "muon", "adam8bit")
STATES = ("mixed", "mixed-fp32-gradients", "mixed-dual-gradients", "fp32-shards", "pure")
"""State regimes: which copies are kept in which dtype; `optimizer` has their bytes."""
TUNINGS = ("full", "lora", "frozen")
LORA_TARGETS = ("q", "k", "v", "o", "gate", "up", "down")
MAX_COUNT = 2**30
"""The largest sequence length or batch; more is a slip of the keyboard."""


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes a parameter of each kind of state that lives between steps.

    The sum of a mixed-precision Adam is 2 + 2 + 4 + 8 = 16 (ZeRO, arXiv:1910.02054 section 3.1).
    """

    parameter: float
    """The copy that the forward pass reads (or, for FSDP, that the shards are kept in)."""
    gradient: float
    """The gradient buffer."""
    main_gradient: float
    """A second gradient copy in fp32, kept beside a 16-bit buffer; sharded like the optimizer."""
    master: float
    """The fp32 copy of the parameters."""
    moments: float
    """The optimizer's own states (8 for fp32 Adam)."""
    compute: float
    """The dtype that parameters are gathered and multiplied in."""
    reduce: float
    """The dtype that gradients travel in."""

    @property
    def total(self) -> float:
        """Bytes a parameter on an unsharded rank."""
        return self.parameter + self.gradient + self.main_gradient + self.master + self.moments


@dataclass(frozen=True, slots=True)
class Tuning:
    """Which parameters learn: all of them, LoRA adapters, or all but the first frozen layers."""

    kind: str = "full"
    """full, lora or frozen."""
    lora_rank: int = 16
    lora_targets: tuple[str, ...] = ("q", "k", "v", "o")
    """Of q, k, v, o, gate, up, down."""
    frozen_layers: int = 0

    @property
    def frozen(self) -> int:
        """First layers that have no backward; under LoRA all have one."""
        return self.frozen_layers if self.kind == "frozen" else 0


@dataclass(frozen=True, slots=True)
class Workload:
    """One optimizer step's work."""

    seq_len: int
    global_batch: int
    """Sequences a step, over all ranks."""
    precision: str = "bf16"
    optimizer: str = "adamw"
    states: str = "mixed"
    """Which copies are kept in which dtype; see `optimizer.state_bytes`."""
    causal: bool = True
    fused_attention: bool = True
    """FlashAttention or the like: the scores never reach memory."""
    implementation: str = "fused"
    tuning: Tuning = Tuning()
    dropout: bool = False
    overlap: bool = True
    """Gradient and parameter traffic runs beside compute (DDP buckets, FSDP prefetch)."""

    @property
    def tokens(self) -> int:
        """Tokens a step."""
        return self.seq_len * self.global_batch


def make_workload(seq_len: int, global_batch: int, **options: Any) -> Workload:
    """A Workload whose numbers are possible; `options` are its other fields.

    Raises WorkloadError for an unknown field, an impossible number or an unknown name, with the legal values.
    """
    names = [field.name for field in fields(Workload)]
    for option in options:
        if option not in names:
            raise WorkloadError(f"A workload has no field {option!r}.", legal=_nearest(option, names))
    workload = Workload(seq_len, global_batch, **options)
    validate_workload(workload)
    return workload


def validate_workload(workload: Workload) -> None:
    """Raises WorkloadError when no run could be like this, with the legal values."""
    _check_count("seq_len", workload.seq_len, 1)
    _check_count("global_batch", workload.global_batch, 1)
    for name, legal in (
        ("precision", PRECISIONS),
        ("optimizer", OPTIMIZERS),
        ("states", STATES),
        ("implementation", IMPLEMENTATIONS),
    ):
        _check_name(name, getattr(workload, name), legal)
    for name in ("causal", "fused_attention", "dropout", "overlap"):
        if not isinstance(getattr(workload, name), bool):
            raise WorkloadError(f"{name} is {getattr(workload, name)!r}.", legal=("true", "false"))
    if workload.precision == "fp32" and workload.states != "mixed":
        raise WorkloadError(
            f"In fp32 every state is kept in fp32: states {workload.states!r} does not apply.", legal=("mixed",)
        )
    _check_tuning(workload.tuning)


def _check_tuning(tuning: Tuning) -> None:
    _check_name("tuning", tuning.kind, TUNINGS)
    _check_count("lora_rank", tuning.lora_rank, 1)
    _check_count("frozen_layers", tuning.frozen_layers, 0)
    for target in tuning.lora_targets:
        _check_name("lora target", target, LORA_TARGETS)
    if tuning.kind == "lora" and not tuning.lora_targets:
        raise WorkloadError("LoRA without a target trains nothing.", legal=LORA_TARGETS)
    if len(set(tuning.lora_targets)) < len(tuning.lora_targets):
        raise WorkloadError("A LoRA target is named twice.", legal=tuple(dict.fromkeys(tuning.lora_targets)))
    if tuning.frozen_layers and tuning.kind != "frozen":
        raise WorkloadError(f"frozen_layers does not apply to tuning {tuning.kind!r}.", legal=("frozen",))


def _check_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_COUNT:
        raise WorkloadError(f"{name} is {str(value)[:40]}.", legal=(f"a whole number from {least} to {MAX_COUNT}",))


def _check_name(name: str, value: object, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise WorkloadError(f"Unknown {name} {str(value)[:40]!r}.", legal=_nearest(str(value), legal))


def _nearest(value: str, legal: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    return tuple(get_close_matches(value[:40].lower(), legal, n=3, cutoff=0.5)) or tuple(legal)
