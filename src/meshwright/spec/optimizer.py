"""Bytes a parameter: which copies of it a training step keeps, in which dtype.

| `states` | parameter + gradient + main gradient + master + AdamW's moments | who |
| --- | --- | --- |
| `mixed` | 2 + 2 + 0 + 4 + 8 = 16 | ZeRO, arXiv:1910.02054 section 3.1; DeepSpeed |
| `mixed-fp32-gradients` | 2 + 4 + 0 + 4 + 8 = 18 | Megatron in bf16; with its distributed optimizer 6 + 12/d |
| `mixed-dual-gradients` | 2 + 2 + 4 + 4 + 8 = 20 | Megatron in fp16; with its distributed optimizer 4 + 16/d |
| `fp32-shards` | 4 + 4 + 0 + 0 + 8 = 16 | FSDP2 with a MixedPrecisionPolicy: kept in fp32, gathered in 16 bit |
| `pure` | 2 + 2 + 0 + 0 + 4 = 8 | everything in 16 bit |

Megatron's sums: docs.nvidia.com/megatron-core, developer guide, "Distributed Optimizer". fp32 has one regime,
4 + 4 + 0 + 0 + 8 = 16. fp8 multiplies in fp8 but keeps and gathers its weights in bf16 (Transformer Engine without
fp8 parameter gathering), so its bytes are bf16's.

The optimizer changes the moments only. Of `m` bytes a moment (4, in `pure` 2):

| optimizer | moments | source |
| --- | --- | --- |
| `adamw`, `lamb` | 2m | arXiv:1711.05101, arXiv:1904.00962 |
| `sgd` | m | momentum |
| `adafactor` | m (rows + columns) / (rows × columns), no first moment | arXiv:1804.04235 section 4 |
| `muon` | m in hidden matrices, AdamW's 2m in embeddings and head | github.com/KellerJordan/Muon; torch.optim.Muon |
| `adam8bit` | 2, and an fp32 scale for each block of 256 of a moment | arXiv:2110.02861; bitsandbytes |
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.spec.errors import WorkloadError
from meshwright.spec.matrices import weight_matrices
from meshwright.spec.model import Model
from meshwright.spec.workload import StateBytes, Workload

ADAM8BIT_BLOCK = 256
"""Elements that share a scale in bitsandbytes' 8-bit states."""


@dataclass(frozen=True, slots=True)
class _Regime:
    """Bytes a parameter, but for the moments; `moment` is one moment's."""

    parameter: float
    gradient: float
    main_gradient: float
    master: float
    moment: float
    compute: float
    reduce: float


_FP32 = _Regime(4.0, 4.0, 0.0, 0.0, 4.0, compute=4.0, reduce=4.0)
_REGIMES = {
    "mixed": _Regime(2.0, 2.0, 0.0, 4.0, 4.0, compute=2.0, reduce=2.0),
    "mixed-fp32-gradients": _Regime(2.0, 4.0, 0.0, 4.0, 4.0, compute=2.0, reduce=4.0),
    "mixed-dual-gradients": _Regime(2.0, 2.0, 4.0, 4.0, 4.0, compute=2.0, reduce=2.0),
    "fp32-shards": _Regime(4.0, 4.0, 0.0, 0.0, 4.0, compute=2.0, reduce=4.0),
    "pure": _Regime(2.0, 2.0, 0.0, 0.0, 2.0, compute=2.0, reduce=2.0),
}


def state_bytes(workload: Workload, model: Model | None = None) -> StateBytes:
    """Bytes of each kind of state that a learning parameter has; a frozen one has `parameter` alone.

    Adafactor and Muon keep states by the shape of the weights: they need `model`, and the moments are its mean.
    Raises WorkloadError where the model is needed and missing.
    """
    regime = _FP32 if workload.precision == "fp32" else _REGIMES[workload.states]
    return StateBytes(
        parameter=regime.parameter,
        gradient=regime.gradient,
        main_gradient=regime.main_gradient,
        master=regime.master,
        moments=_moments(workload.optimizer, regime.moment, model),
        compute=regime.compute,
        reduce=regime.reduce,
    )


def _moments(optimizer: str, moment: float, model: Model | None) -> float:
    """The optimizer's own bytes a parameter, with `moment` bytes for one full moment."""
    match optimizer:
        case "adamw" | "lamb":
            return 2 * moment
        case "sgd":
            return moment
        case "adam8bit":
            return 2 * (1 + 4 / ADAM8BIT_BLOCK)
        case "adafactor":
            return moment * _factored_share(_required(optimizer, model))
        case "muon":
            return moment * (1 + _table_share(_required(optimizer, model)))
    raise WorkloadError(f"Unknown optimizer {optimizer!r}.")


def _required(optimizer: str, model: Model | None) -> Model:
    if model is None:
        raise WorkloadError(f"The states of {optimizer} depend on the shapes of the weights: name a model.")
    return model


def _factored_share(model: Model) -> float:
    """Numbers in the row and column statistics, relative to the parameters."""
    matrices = weight_matrices(model)
    return sum((m.rows + m.columns) * m.count for m in matrices) / sum(m.size for m in matrices)


def _table_share(model: Model) -> float:
    """Share of the parameters that lie in embeddings and head."""
    matrices = weight_matrices(model)
    return sum(m.size for m in matrices if m.table) / sum(m.size for m in matrices)
