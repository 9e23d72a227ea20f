"""Options: what tunes the modes without changing what they compute."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Options:
    """Knobs of the modes. None of them changes a result beyond rounding, `dtype` apart."""

    dtype: torch.dtype | None = None
    """What forward and backward compute in (bf16, fp16); None: the parameters' own dtype."""
    reduce_dtype: torch.dtype | None = None
    """What gradients travel in; None: the parameters' own dtype."""
    bucket_mb: float = 25.0
    """DDP: MiB of gradients an all-reduce (PyTorch's default)."""
    static_graph: bool = False
    """DDP: the same parameters are used in the same order in every step."""
    find_unused: bool = False
    """DDP: look for parameters that backward did not reach, in every step."""
    prefetch: int = 1
    """FSDP: blocks whose parameters are gathered ahead of the one that computes; 0: none."""
    rate_limit: int = 2
    """FSDP: gradient buffers in flight before the next reduce-scatter waits."""
    compile: bool = False
    """torch.compile of each block."""
    schedule_table: str | None = None
    """A pipeline schedule in PyTorch's CSV form, instead of the layout's schedule."""
