"""FLOPs of a step, as MFU and HFU count them."""

from __future__ import annotations

from meshwright.cost import operations as ops
from meshwright.cost.layer import layer_operations
from meshwright.cost.parameters import matmul_parameters
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

FORMULA = "6·N·tokens + 12·layers·heads·head_dim·sequence·tokens (PaLM, arXiv:2204.02311 appendix B)"


def model_flops(model: Model, workload: Workload) -> float:
    """FLOPs of one step without recomputation: 6 a matmul parameter and token, and attention in full (not halved).

    N counts the parameters that a token multiplies with: the head, not the embedding's look-up; of the experts those
    that it visits.
    """
    dense = 6.0 * matmul_parameters(model) * workload.tokens
    attention = 12.0 * model.layers * model.heads * model.head_dim * workload.seq_len * workload.tokens
    return dense + attention


def recomputed_flops(model: Model, workload: Workload, layout: Layout) -> float:
    """Forward FLOPs that recomputation runs again in one step, all devices."""
    if layout.recompute == "none":
        return 0.0
    whole = columns_of(Layout(micro_batch=1))
    dense, moe = layer_operations(model, workload, whole)
    share = model.moe_layers / model.layers

    def again(operations: list[ops.Operation]) -> float:
        full = layout.recompute == "full"
        return float(sum(operation.flops for operation in operations if full or operation.replayed))

    layer = again(dense) if moe is None else (1 - share) * again(dense) + share * again(moe)
    return layer * model.layers * workload.global_batch
