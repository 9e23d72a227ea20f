"""Bytes a parameter: which copies of it a training step keeps, in which dtype.

| `states` | parameter + gradient + main gradient + master + Adam's moments | who |
| --- | --- | --- |
| `mixed` | 2 + 2 + 0 + 4 + 8 = 16 | ZeRO, arXiv:1910.02054 section 3.1; DeepSpeed |
| `mixed-fp32-gradients` | 2 + 4 + 0 + 4 + 8 = 18 | Megatron bf16 (its distributed-optimizer page) |
| `mixed-dual-gradients` | 2 + 2 + 4 + 4 + 8 = 20 | Megatron fp16 (the same page) |
| `fp32-shards` | 4 + 4 + 0 + 0 + 8 = 16 | FSDP2 with a MixedPrecisionPolicy: gathered in 16 bit |
| `pure` | 2 + 2 + 0 + 0 + 4 = 8 | everything in 16 bit |

In fp32 there is one regime, 4 + 4 + 0 + 0 + 8 = 16. fp8 keeps its weights in bf16, casts them at the product and
gathers them in bf16 (Transformer Engine's default), so that its bytes are bf16's.
"""

from __future__ import annotations

from meshwright.spec.workload import StateBytes, Workload

STATES = {
    # states: (parameter, gradient, main_gradient, master, one moment, compute, reduce)
    "mixed": (2.0, 2.0, 0.0, 4.0, 4.0, 2.0, 2.0),
    "mixed-fp32-gradients": (2.0, 4.0, 0.0, 4.0, 4.0, 2.0, 4.0),
    "mixed-dual-gradients": (2.0, 2.0, 4.0, 4.0, 4.0, 2.0, 2.0),
    "fp32-shards": (4.0, 4.0, 0.0, 0.0, 4.0, 2.0, 4.0),
    "pure": (2.0, 2.0, 0.0, 0.0, 2.0, 2.0, 2.0),
}
_FP32 = (4.0, 4.0, 0.0, 0.0, 4.0, 4.0, 4.0)


def state_bytes(workload: Workload) -> StateBytes:
    """Bytes of each kind of state that one learning parameter has."""
    parameter, gradient, main, master, moment, compute, reduce = (
        _FP32 if workload.precision == "fp32" else STATES[workload.states]
    )
    moments = 2.0 * moment
    return StateBytes(parameter, gradient, main, master, moments, compute, reduce)
