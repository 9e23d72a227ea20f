"""Workload: what is trained, on how much at once, in which precision, with which optimizer."""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = ("fp32", "fp16", "bf16", "fp8")
IMPLEMENTATIONS = ("eager", "fused", "compiled")


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
