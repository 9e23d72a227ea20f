"""FLOPs that one rank's kernels do in a step, by kind of operation: what `rehearse` counts.

Products: 2·m·n·k, and once more for each gradient (PaLM, arXiv:2204.02311 appendix B). Attention: two products forward
and five backward over the keys that a query sees (arXiv:2205.14135). The head multiplies with this rank's rows of the
vocabulary. Routing is balanced.
"""

from __future__ import annotations

import math

from meshwright.cost import operations as ops
from meshwright.cost.layer import layer_operations
from meshwright.cost.step import micro_batch_count
from meshwright.cost.wire.local import stages_of
from meshwright.cost.wire.place import Place
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

KINDS = (ops.MATMUL, ops.ATTENTION)


def rank_flops(
    model: Model, workload: Workload, layout: Layout, rank: int, *, filled: bool = False
) -> dict[str, float]:
    """FLOPs by kind, forward and backward together; without what recomputation runs again.

    `filled`: values narrower than keys are filled up to their width, as PyTorch's kernel for CPUs wants them.
    """
    columns, place = columns_of(layout), Place(layout, rank)
    dense, moe = layer_operations(model, workload, columns)
    micro_batches = float(micro_batch_count(workload, columns))
    found = dict.fromkeys(KINDS, 0.0)
    for stage in stages_of(model, place):
        for layer in stage.layers:
            operations = moe if moe is not None and model.is_moe_layer(layer) else dense
            for operation in operations:
                if operation.kind in found:
                    passes = 1 + operation.input_gradient + operation.weight_gradient
                    wider = _wider(model) if filled and operation.kind == ops.ATTENTION else 1.0
                    found[operation.kind] += float(operation.flops) * wider * passes * micro_batches
        if stage.index == layout.stages - 1:
            tokens = float(ops.sizes(workload, columns).tokens)
            rows = math.ceil(model.vocab / layout.tensor)
            found[ops.MATMUL] += 6.0 * tokens * model.hidden * rows * micro_batches
    return found


def _wider(model: Model) -> float:
    """Attention's FLOPs with values of the keys' width, relative to those with their own."""
    m = model.latent
    if m is None or m.v_head_dim >= model.head_dim:
        return 1.0
    return 2 * model.head_dim / (model.head_dim + m.v_head_dim)
